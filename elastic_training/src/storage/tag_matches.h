// SPDX-License-Identifier: Apache-2.0
// Looks for a tag among those of a bucket, all at a time.
#ifndef ELASTIC_TRAINING_STORAGE_TAG_MATCHES_H_
#define ELASTIC_TRAINING_STORAGE_TAG_MATCHES_H_

#include <cstdint>

#ifdef __SSE2__
#include <emmintrin.h>
#endif

namespace elastic_training {

/// Bit i is set if `bucket.tags[i]` is equal to `tag`. The bucket begins with its tags, at most 16, and is a cache line.
template <typename Bucket>
uint32_t Matches(const Bucket& bucket, uint8_t tag) {
  constexpr uint32_t kEntries = sizeof(bucket.tags);
  static_assert(kEntries <= 16 && sizeof(Bucket) >= 16);
#ifdef __SSE2__
  const __m128i tags = _mm_load_si128(reinterpret_cast<const __m128i*>(bucket.tags));
  return _mm_movemask_epi8(_mm_cmpeq_epi8(tags, _mm_set1_epi8(static_cast<char>(tag)))) & ((1 << kEntries) - 1);
#else
  uint32_t matches = 0;
  for (uint32_t i = 0; i < kEntries; ++i) matches |= static_cast<uint32_t>(bucket.tags[i] == tag) << i;
  return matches;
#endif
}

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_STORAGE_TAG_MATCHES_H_
