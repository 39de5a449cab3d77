// SPDX-License-Identifier: Apache-2.0
// Which variant of an experiment a request belongs to: a pure function of a salt and a routing key.
//
//     bucket = (mix(fnv1a64(salt ‖ 0x00 ‖ key)) × 10000) >> 64
//
// docs/model_host.md specifies it, and serving_proxy.experiments.assign computes the same in Python: clients and analysts
// can tell who was in which arm without asking. It must never change.
#ifndef PROCESSOR_HOST_DESIRED_ROUTING_H_
#define PROCESSOR_HOST_DESIRED_ROUTING_H_

#include <cstdint>
#include <string_view>
#include <vector>

namespace processor {

/// Buckets of a layer: weights are in hundredths of a percent.
constexpr uint32_t kRoutingBuckets = 10000;

/// The bucket of a key in the layer with that salt, in [0, kRoutingBuckets). Both are bytes.
uint32_t RoutingBucket(std::string_view salt, std::string_view key);

/// The bucket of the `number`th request that has no key: any 10,000 in a row have each bucket once, well mixed.
uint32_t KeylessBucket(uint64_t number);

/// A bucket of the `number`th request that says nothing of its others, nor of its KeylessBucket: as if it were drawn.
uint32_t DrawnBucket(uint64_t number);

/// An arm takes the buckets [offset, offset + weight).
struct RoutingArm {
  int64_t version = 0;
  uint32_t offset = 0;
  uint32_t weight = 0;
};

/// The arm that takes a bucket; null if none does. `arms` do not overlap.
const RoutingArm* ArmFor(uint32_t bucket, const std::vector<RoutingArm>& arms);

}  // namespace processor

#endif  // PROCESSOR_HOST_DESIRED_ROUTING_H_
