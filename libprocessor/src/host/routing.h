// SPDX-License-Identifier: Apache-2.0
// Which part of the traffic a key belongs to: a pure function, documented in docs/model_host.md.
#ifndef PROCESSOR_HOST_ROUTING_H_
#define PROCESSOR_HOST_ROUTING_H_

#include <cstdint>
#include <string_view>

namespace processor {

/// Shares are in hundredths of a percent.
constexpr int kRoutingBuckets = 10000;

/// The bucket of a key, from 0 to 9,999: equal for equal salts and keys, on every machine and in every release.
uint32_t RoutingBucket(std::string_view salt, std::string_view key);

/// The bucket of the `number`th request that has no key: any 10,000 in a row have each bucket once, well mixed.
uint32_t KeylessBucket(uint64_t number);

}  // namespace processor

#endif  // PROCESSOR_HOST_ROUTING_H_
