// SPDX-License-Identifier: Apache-2.0
#include "src/host/routing.h"

namespace processor {
namespace {

constexpr uint64_t kFnvOffset = 0xcbf29ce484222325;
constexpr uint64_t kFnvPrime = 0x100000001b3;

uint64_t Fnv1a(uint64_t hash, std::string_view bytes) {
  for (const char byte : bytes) hash = (hash ^ static_cast<uint8_t>(byte)) * kFnvPrime;
  return hash;
}

// FNV leaves its last bytes in the low bits; the bucket is taken from the high ones.
uint64_t Mix(uint64_t h) {
  h ^= h >> 33;
  h *= 0xff51afd7ed558ccd;
  h ^= h >> 33;
  h *= 0xc4ceb9fe1a85ec53;
  h ^= h >> 33;
  return h;
}

}  // namespace

uint32_t RoutingBucket(std::string_view salt, std::string_view key) {
  const uint64_t hash = Fnv1a(Fnv1a(Fnv1a(kFnvOffset, salt), std::string_view("\0", 1)), key);
  __extension__ using Wide = unsigned __int128;
  return static_cast<uint32_t>(Wide{Mix(hash)} * kRoutingBuckets >> 64);
}

uint32_t KeylessBucket(uint64_t number) {
  // Near the golden ratio of all buckets, and without a common divisor: neighbours fall far from each other.
  constexpr uint64_t kStep = 6181;
  return static_cast<uint32_t>(number % kRoutingBuckets * kStep % kRoutingBuckets);
}

}  // namespace processor
