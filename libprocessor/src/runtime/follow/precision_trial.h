// SPDX-License-Identifier: Apache-2.0
// Runs the recorded requests of a live model at one epoch, in fp32 and in the precisions that its certificate permits.
#ifndef PROCESSOR_RUNTIME_FOLLOW_PRECISION_TRIAL_H_
#define PROCESSOR_RUNTIME_FOLLOW_PRECISION_TRIAL_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "src/runtime/follow/precision_comparison.h"
#include "src/runtime/version/artifact.h"
#include "src/runtime/version/model_version.h"
#include "src/runtime/version/pinned_epoch.h"

namespace processor {

/// An epoch in several precisions. Its views are apart from those that requests read, so no request waits for their weights.
struct PrecisionTrial {
  std::shared_ptr<ModelVersion> version;
  std::vector<PermittedPrecision> permitted;  // less precise ones first
  std::vector<PinnedEpoch> views;             // [permitted]
  PinnedEpoch exact;                          // in fp32
};

struct TrialOutcome {
  size_t requests = 0;
  int64_t rows = 0;
  std::vector<PrecisionLoss> losses;  // of those permitted, up to the first without a problem
  double cpu_ms = 0;                  // of the calling thread

  bool any_passed() const { return !losses.empty() && losses.back().problem.empty(); }
};

/// Makes the views of an epoch.
absl::Status MakeTrial(std::shared_ptr<ModelVersion> version, const PinnedEpoch& epoch,
                       std::vector<PermittedPrecision> permitted, PrecisionTrial* trial);

/// Runs the requests and gives back the weights that it has made.
/// \return FAILED_PRECONDITION if there are too few requests to prove anything; why a request failed;
/// Cancellation::Current() as Session::Run().
absl::Status RunTrial(PrecisionTrial trial, TrialOutcome* outcome);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_FOLLOW_PRECISION_TRIAL_H_
