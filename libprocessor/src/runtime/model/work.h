// SPDX-License-Identifier: Apache-2.0
// A request as the runtime runs it: how to read its tensors, and where its outputs go. The caller of the model owns it.
#ifndef PROCESSOR_RUNTIME_MODEL_WORK_H_
#define PROCESSOR_RUNTIME_MODEL_WORK_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "src/codec/codec.h"
#include "src/runtime/stats/stats.h"
#include "src/runtime/version/model_version.h"

namespace processor {

/// A request whose caller waits for it. The functions are called on one thread at a time.
class Work {
 public:
  virtual ~Work() = default;
  virtual absl::Status Decode(const ModelVersion& version, DecodedRequest* request) = 0;
  virtual absl::Status Encode(const ModelVersion& version, const DecodedRequest& request,
                              std::vector<tensorflow::Tensor>& outputs) = 0;

  int32_t priority = 0;
  int64_t deadline_us = 0;  // on CLOCK_MONOTONIC; 0: none
  int64_t min_epoch = 0;    // the least epoch that may answer, of a version that follows a timeline
  bool alone = false;       // Model::Run() does not batch it
  /// Written when the request ends.
  RequestTiming timing;
};

/// A request that ends by a call of Done(): exactly one, on any thread, also while another thread is in Decode().
class AsyncWork : public Work {
 public:
  virtual void Done(const absl::Status& status) noexcept = 0;

  /// Whether the caller enforces the deadline itself.
  bool caller_keeps_deadline = false;
  /// Whether Done() may be called while a stopped request is still being read or run, because it borrows nothing.
  /// Encode() is not called after that, and Decode() must tolerate it.
  bool may_end_early = false;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_MODEL_WORK_H_
