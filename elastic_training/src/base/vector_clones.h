// SPDX-License-Identifier: Apache-2.0
// A loop over floats, compiled for several instruction sets; the loader picks one. Products and sums are rounded separately
// in all of them (-ffp-contract=off), so all compute the same bits.
#ifndef ELASTIC_TRAINING_BASE_VECTOR_CLONES_H_
#define ELASTIC_TRAINING_BASE_VECTOR_CLONES_H_

// The loader picks before ThreadSanitizer is ready, so a build with it has one form only.
#if defined(__x86_64__) && defined(__GNUC__) && !defined(__clang__) && !defined(__SANITIZE_THREAD__) && \
    !defined(__SANITIZE_ADDRESS__)
#define ELASTIC_VECTOR_CLONES __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define ELASTIC_VECTOR_CLONES
#endif

#endif  // ELASTIC_TRAINING_BASE_VECTOR_CLONES_H_
