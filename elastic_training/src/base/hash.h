// SPDX-License-Identifier: Apache-2.0
// Mixes the bits of keys. The mixing is a bijection, so different keys have different hashes.
#ifndef ELASTIC_TRAINING_BASE_HASH_H_
#define ELASTIC_TRAINING_BASE_HASH_H_

#include <cstdint>

namespace elastic_training {

/// Returns the finalizer of SplitMix64 of `bits`: every bit of the result depends on every bit of `bits`.
inline uint64_t Mix(uint64_t bits) {
  bits = (bits ^ bits >> 30) * 0xbf58476d1ce4e5b9;
  bits = (bits ^ bits >> 27) * 0x94d049bb133111eb;
  return bits ^ bits >> 31;
}

/// The step of SplitMix64's state, 2^64 divided by the golden ratio.
constexpr uint64_t kGoldenStep = 0x9e3779b97f4a7c15;

/// Returns the hash that places a key in a table.
inline uint64_t HashKey(uint64_t key) { return Mix(key + kGoldenStep); }

/// Returns the first 53 bits of a hash as a number in [0, 1).
inline double FractionOf(uint64_t hash) { return static_cast<double>(hash >> 11) * 0x1p-53; }

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_BASE_HASH_H_
