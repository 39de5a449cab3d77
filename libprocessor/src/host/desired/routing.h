// SPDX-License-Identifier: Apache-2.0
// Computes which variant of an experiment a request belongs to: a pure function of a salt and a routing key.
//
//     bucket = (mix(fnv1a64(salt ‖ 0x00 ‖ key)) × 10000) >> 64
//
// docs/model_host.md specifies it, and serving_proxy.experiments.assign computes the same in Python: clients and
// analysts can compute the arm of every user. It must never change.
#ifndef PROCESSOR_HOST_DESIRED_ROUTING_H_
#define PROCESSOR_HOST_DESIRED_ROUTING_H_

#include <cstdint>
#include <string_view>
#include <vector>

namespace processor {

/// The number of buckets in a layer: weights are in hundredths of a percent.
constexpr uint32_t kRoutingBuckets = 10000;

/// Returns the bucket of a key in the layer with that salt, in [0, kRoutingBuckets). Salt and key are bytes.
uint32_t RoutingBucket(std::string_view salt, std::string_view key);

/// Returns the bucket of the `number`th request that has no key: any 10,000 consecutive numbers have different buckets,
/// well mixed.
uint32_t KeylessBucket(uint64_t number);

/// Returns a bucket of the `number`th request as if it were drawn at random: it is independent of KeylessBucket().
uint32_t DrawnBucket(uint64_t number);

/// A version's share of the requests: the buckets [offset, offset + weight).
struct RoutingArm {
  int64_t version = 0;
  uint32_t offset = 0;
  uint32_t weight = 0;
};

/// Returns the arm that a bucket falls into; null if there is none. `arms` do not overlap.
const RoutingArm* ArmFor(uint32_t bucket, const std::vector<RoutingArm>& arms);

}  // namespace processor

#endif  // PROCESSOR_HOST_DESIRED_ROUTING_H_
