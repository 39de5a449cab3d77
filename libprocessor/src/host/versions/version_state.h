// SPDX-License-Identifier: Apache-2.0
// The states of a version in a host, as actual.json and the protocols report them.
#ifndef PROCESSOR_HOST_VERSIONS_VERSION_STATE_H_
#define PROCESSOR_HOST_VERSIONS_VERSION_STATE_H_

namespace processor {

enum class VersionState { kLoading, kWarming, kReady, kDraining, kFailed };

constexpr const char* VersionStateName(VersionState state) {
  switch (state) {
    case VersionState::kLoading:
      return "loading";
    case VersionState::kWarming:
      return "warming";
    case VersionState::kReady:
      return "ready";
    case VersionState::kDraining:
      return "draining";
    case VersionState::kFailed:
      return "failed";
  }
  return "";
}

}  // namespace processor

#endif  // PROCESSOR_HOST_VERSIONS_VERSION_STATE_H_
