// SPDX-License-Identifier: Apache-2.0
// The hashes of TensorFlow's StringToHashBucket ops, with equal bits. Any thread may call them.
#ifndef PROCESSOR_KERNELS_STRING_HASH_H_
#define PROCESSOR_KERNELS_STRING_HASH_H_

#include <cstddef>
#include <cstdint>

namespace processor {

/// Returns the hash of StringToHashBucketFast: FarmHash's Fingerprint64.
uint64_t FastHash(const char* bytes, size_t size);

/// Returns the hash of StringToHashBucketStrong: SipHash-2-4.
uint64_t StrongHash(const uint64_t key[2], const char* bytes, size_t size);

/// Returns the hash of StringToHashBucket: TensorFlow's Hash64.
uint64_t LegacyHash(const char* bytes, size_t size);

}  // namespace processor

#endif  // PROCESSOR_KERNELS_STRING_HASH_H_
