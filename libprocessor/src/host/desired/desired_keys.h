// SPDX-License-Identifier: Apache-2.0
// The keys of desired.json that this library reads, by which writers learn what hosts of another release understand. Any
// thread may call these functions.
#ifndef PROCESSOR_HOST_DESIRED_DESIRED_KEYS_H_
#define PROCESSOR_HOST_DESIRED_DESIRED_KEYS_H_

#include <string>
#include <string_view>
#include <vector>

namespace processor {

/// The keys of desired.json as a whole, of a host in it, of a model, and of a version.
const std::vector<std::string>& DesiredStateKeys();
const std::vector<std::string>& DesiredHostKeys();
const std::vector<std::string>& DesiredModelKeys();
const std::vector<std::string>& DesiredVersionKeys();

/// Returns these keys as names of features: "desired:waiting", "host:drained", "model:shadow", "version:follow".
std::vector<std::string> DesiredFeatures();

/// Whether the environment variable PROCESSOR_WITHOUT_FEATURES, names separated by commas, takes a feature away. With it,
/// this library behaves like one of an earlier release, to try an upgrade.
bool IsWithoutFeature(std::string_view feature);

}  // namespace processor

#endif  // PROCESSOR_HOST_DESIRED_DESIRED_KEYS_H_
