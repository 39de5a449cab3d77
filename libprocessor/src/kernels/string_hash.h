// SPDX-License-Identifier: Apache-2.0
// The hashes of TensorFlow's StringToHashBucket ops, bit by bit.
#ifndef PROCESSOR_KERNELS_STRING_HASH_H_
#define PROCESSOR_KERNELS_STRING_HASH_H_

#include <cstddef>
#include <cstdint>

namespace processor {

/// FarmHash's Fingerprint64: StringToHashBucketFast.
uint64_t FastHash(const char* bytes, size_t size);

/// SipHash-2-4: StringToHashBucketStrong.
uint64_t StrongHash(const uint64_t key[2], const char* bytes, size_t size);

/// TensorFlow's Hash64: StringToHashBucket.
uint64_t LegacyHash(const char* bytes, size_t size);

}  // namespace processor

#endif  // PROCESSOR_KERNELS_STRING_HASH_H_
