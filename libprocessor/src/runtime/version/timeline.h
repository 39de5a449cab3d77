// SPDX-License-Identifier: Apache-2.0
// Writes step statistics of chosen requests, one file each, for tools that draw them. The model owns it; any thread may
// call.
#ifndef PROCESSOR_RUNTIME_VERSION_TIMELINE_H_
#define PROCESSOR_RUNTIME_VERSION_TIMELINE_H_

#include <atomic>
#include <cstdint>

#include "src/runtime/config/model_config.h"
#include "tensorflow/core/framework/step_stats.pb.h"

namespace processor {

class Timeline {
 public:
  explicit Timeline(const TimelineConfig& config) : config_(config) {}

  /// Counts a request; returns its number in the timeline if it is to be traced, else -1.
  int64_t Next();

  /// Writes `<path>/timeline-<number>`, a serialized StepStats. A failure is only logged, because the request was
  /// answered.
  void Write(int64_t number, const tensorflow::StepStats& stats) const;

 private:
  const TimelineConfig config_;
  std::atomic<int64_t> step_{0};
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_VERSION_TIMELINE_H_
