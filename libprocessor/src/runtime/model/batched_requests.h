// SPDX-License-Identifier: Apache-2.0
// Runs the requests of a model in batches: reads each, runs the batches that the batcher forms, and writes the response
// of each. The model owns it.
#ifndef PROCESSOR_RUNTIME_MODEL_BATCHED_REQUESTS_H_
#define PROCESSOR_RUNTIME_MODEL_BATCHED_REQUESTS_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "src/runtime/batching/batch_stats.h"
#include "src/runtime/batching/batcher.h"
#include "src/runtime/model/model_parts.h"
#include "src/runtime/model/request_call.h"
#include "src/runtime/model/work.h"

namespace processor {

/// Any thread may call. The requests have passed the gate of the model.
class BatchedRequests {
 public:
  /// The parts are borrowed.
  explicit BatchedRequests(ModelParts* parts);

  /// Sets how requests are batched from now on, including those that wait.
  void SetOptions(const BatchOptions& options) { batcher_.SetOptions(options); }
  BatchOptions options() const { return batcher_.options(); }
  bool on() const { return batcher_.on(); }

  /// Runs a request, alone or in a batch, and waits for it.
  absl::Status Run(Work& work, int session);
  /// Starts a request. `id`: may be null.
  /// \return why it was not accepted; Done() is not called then.
  absl::Status Start(Admission& admission, std::shared_ptr<AsyncWork> work, int session, uint64_t* id);

  /// Ends waiting and later requests with `status`.
  void Stop(const absl::Status& status) { batcher_.Stop(status); }

  size_t waiting() const { return batcher_.waiting(); }
  const BatchStats& stats() const { return stats_; }

 private:
  class Request;
  class WaitedRequest;
  class StartedRequest;
  class ServeTask;

  Batcher::Setup BatcherSetup();
  void RunChain(int session, BatchEntry* first) noexcept;
  void RunChainOrThrow(int session, BatchEntry* first);
  void RunBatch(int session, int64_t start_ns, const std::vector<Request*>& members);

  ModelParts& parts_;
  const int64_t places_;  // of all sessions
  Batcher batcher_;
  std::vector<std::shared_ptr<Task>> serve_tasks_;  // [session]
  BatchStats stats_;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_MODEL_BATCHED_REQUESTS_H_
