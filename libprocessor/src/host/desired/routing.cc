// SPDX-License-Identifier: Apache-2.0
#include "src/host/desired/routing.h"

namespace processor {
namespace {

constexpr uint64_t kFnvOffset = 0xcbf29ce484222325u;
constexpr uint64_t kFnvPrime = 0x100000001b3u;

uint64_t Fnv1a(uint64_t hash, std::string_view bytes) {
  for (const char byte : bytes) hash = (hash ^ static_cast<unsigned char>(byte)) * kFnvPrime;
  return hash;
}

// FNV gives nearly equal upper bits, of which the bucket is made, to short keys that differ only in the last byte.
uint64_t Mix(uint64_t hash) {
  hash ^= hash >> 33;
  hash *= 0xff51afd7ed558ccdu;
  hash ^= hash >> 33;
  hash *= 0xc4ceb9fe1a85ec53u;
  hash ^= hash >> 33;
  return hash;
}

// Returns the upper half of the 128-bit product. The factor is small, so no carry is lost.
uint32_t Scale(uint64_t hash, uint64_t buckets) {
  const uint64_t low = (hash & 0xffffffffu) * buckets;
  const uint64_t high = (hash >> 32) * buckets;
  return static_cast<uint32_t>((high + (low >> 32)) >> 32);
}

}  // namespace

uint32_t RoutingBucket(std::string_view salt, std::string_view key) {
  const uint64_t salted = Fnv1a(kFnvOffset, salt) * kFnvPrime;  // the zero byte between both
  return Scale(Mix(Fnv1a(salted, key)), kRoutingBuckets);
}

uint32_t KeylessBucket(uint64_t number) {
  // Near the golden ratio of all buckets and coprime with their number, so neighbors fall far from each other.
  constexpr uint64_t kStep = 6181;
  return static_cast<uint32_t>(number % kRoutingBuckets * kStep % kRoutingBuckets);
}

uint32_t DrawnBucket(uint64_t number) {
  constexpr uint64_t kGolden = 0x9e3779b97f4a7c15u;  // small numbers reach the upper bits
  return Scale(Mix((number + 1) * kGolden), kRoutingBuckets);
}

const RoutingArm* ArmFor(uint32_t bucket, const std::vector<RoutingArm>& arms) {
  for (const RoutingArm& arm : arms) {
    if (bucket >= arm.offset && bucket - arm.offset < arm.weight) return &arm;
  }
  return nullptr;
}

}  // namespace processor
