// SPDX-License-Identifier: Apache-2.0
// A loaded model: the current version, the slots its sessions run in, admission, and the thread that follows a
// checkpoint folder.
//
// Requests come from any thread. Each takes the current version, holds it to its end, and runs inline or in the queue
// of a slot. A later checkpoint is loaded and warmed up beside the current version, then swapped in; the old one is
// destroyed on the updater's thread once no request holds it.
#ifndef PROCESSOR_RUNTIME_MODEL_MODEL_H_
#define PROCESSOR_RUNTIME_MODEL_MODEL_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "src/codec/codec.h"
#include "src/runtime/batching/batcher.h"
#include "src/runtime/config/model_config.h"
#include "src/runtime/requests/cancellation.h"
#include "src/runtime/requests/request_watch.h"
#include "src/runtime/session/session_slot.h"
#include "src/runtime/stats/size_histogram.h"
#include "src/runtime/stats/stats.h"
#include "src/runtime/version/checkpoint.h"
#include "src/runtime/version/model_version.h"
#include "src/runtime/version/timeline.h"

namespace processor {

/// A request as the runtime runs it: how to read the tensors, and where the outputs go. Called on one thread at a time,
/// but for Done().
class Work {
 public:
  virtual ~Work() = default;
  virtual absl::Status Decode(const ModelVersion& version, DecodedRequest* request) = 0;
  virtual absl::Status Encode(const ModelVersion& version, const DecodedRequest& request,
                              std::vector<tensorflow::Tensor>& outputs) = 0;

  int32_t priority = 0;
  int64_t deadline_us = 0;  // CLOCK_MONOTONIC; 0: none
  bool alone = false;       // never put together with others, where the calling thread would run it
  /// Written when the request ends.
  RequestTiming timing;
};

/// Work that ends by a call: exactly one, on any thread.
class AsyncWork : public Work {
 public:
  virtual void Done(const absl::Status& status) noexcept = 0;

  /// Whoever waits for it looks at the clock, so that no other thread need.
  bool caller_keeps_deadline = false;
  /// Done() may come while the request is still being read or run, if it has been stopped: nothing is lent to it. Encode()
  /// is not called any more then, and Decode() must not care.
  bool may_end_early = false;
};

/// For whoever watches a load from another thread.
struct LoadProgress {
  /// Has the load given up: between two steps, or at the next kernel of a warm-up request.
  void GiveUp(const absl::Status& why) noexcept { cancellation.Request(why); }

  Cancellation cancellation;
  std::atomic<bool> warming{false};  // all is restored, and being warmed up
};

/// Runs of requests that were put together, or could have been.
struct BatchStats {
  void Record(int64_t rows_of_run, int64_t requests_of_run) {
    rows.Record(rows_of_run);
    requests.Record(requests_of_run);
  }

  SizeHistogram rows;                 // of a run; of one whose requests have none, 0
  SizeHistogram requests;             // of a run
  std::atomic<uint64_t> repeated{0};  // runs whose requests were run one by one as well
};

class Model {
 public:
  /// Loads and warms up. `base_dir`: for a relative warm-up file; may be empty. `progress`: null if nobody watches.
  static absl::Status Load(ModelConfig config, const std::string& base_dir, std::shared_ptr<Model>* model,
                           std::shared_ptr<LoadProgress> progress = nullptr);
  ~Model();

  /// Runs a request and waits for it.
  absl::Status Run(Work& work);

  /// Starts a request. `preferred_session`: -1, or where to queue it (modulo the number of sessions).
  /// \return what Done() will not be told: that the request was not accepted.
  absl::Status Start(std::shared_ptr<AsyncWork> work, int preferred_session, uint64_t* id);

  /// Ends an asynchronous request with `status`: at once, while what has been begun stops at its next kernel.
  /// \return NOT_FOUND if it has ended.
  absl::Status Cancel(uint64_t id, const absl::Status& status);
  /// Ends all requests that are here. Those of callers who wait end when their work has stopped.
  void StopRequests(const absl::Status& status) noexcept;

  absl::Status SetCpuset(std::string_view cpuset);
  /// The CPUs of all sessions together; empty if some session was never told.
  CpuSet Cpus() const;
  /// The CPUs of each session, as in "0-3"; "" for one that was never told.
  std::vector<std::string> Cpusets() const;
  /// Is a request's work bounded by its size, as nothing in the graph is repeated?
  bool IsBounded() const { return bounded_.load(std::memory_order_relaxed); }
  /// Asynchronous requests that run at a time, at most, on CPUs that are not the sessions' own.
  int RequestsAtOnce() const;
  /// Where requests run from now on, whatever the configuration said.
  void SetExecution(Execution execution) { execution_.store(execution); }
  Execution execution() const { return execution_.load(); }
  /// From now on; what waits is run as the new options say.
  void SetBatching(const BatchOptions& options) { batcher_.SetOptions(options); }
  BatchOptions batching() const { return batcher_.options(); }
  absl::Status Drain(int64_t deadline_us);
  /// Refuses new requests and cancels waiting ones. Running ones go on.
  void Refuse() noexcept;
  /// Refuse(), waits `drain_seconds` for running requests, unless Drain() or StopRequests() has been called, cancels what
  /// is left, and unloads.
  void Close() noexcept;

  std::string InfoJson() const;
  std::string SignaturesJson() const;
  /// The default signature in the form of the drop-in contract.
  std::string DropInSignatureJson() const;
  std::string StatsJson() const;

  std::shared_ptr<ModelVersion> version() const;
  const ModelConfig& config() const { return config_; }
  /// Requests that wait for a session.
  size_t queued() const;
  const BatchStats& batch_stats() const { return batch_stats_; }

 private:
  class Admission;
  class Call;
  class InlineCall;
  class SlotTask;
  class BatchedRequest;
  class CallerRequest;
  class StartedRequest;
  class ServeTask;
  enum class State { kServing, kDraining, kClosed };

  Model(ModelConfig config, std::string base_dir, std::shared_ptr<LoadProgress> progress);
  absl::Status LoadFirst();
  absl::Status WaitForSource(VersionSource* source);
  absl::Status FindSource(VersionSource* source);
  absl::Status LoadVersion(const VersionSource& source, bool background);

  void FollowCheckpoints();
  void TryUpdate();
  absl::Status Update();
  void ReleaseRetired();

  absl::Status Admit();
  void Leave() noexcept;
  int PickSession();
  absl::Status Execute(int session, Work& work, Call& call) noexcept;
  absl::Status ExecuteOrThrow(int session, Work& work, Call& call);
  absl::Status RunOnVersion(ModelVersion& version, int session, const DecodedRequest& request,
                            std::vector<tensorflow::Tensor>* outputs);
  absl::Status CheckModelSpec(const ModelVersion& version, const DecodedRequest& request) const;
  void RecordRefusal(const absl::Status& status, int64_t start_ns) noexcept;
  absl::Status StartAdmitted(Admission& admission, std::shared_ptr<AsyncWork> work, int session, uint64_t* id);

  Batcher::Setup BatcherSetup();
  std::shared_ptr<Task> MakeServeTask(int session);
  absl::Status RunBatched(Work& work, int session);
  absl::Status StartBatched(Admission& admission, std::shared_ptr<AsyncWork> work, int session, uint64_t* id);
  void RunChain(int session, BatchEntry* first) noexcept;
  absl::Status RunChainOrThrow(int session, BatchEntry* first);

  const ModelConfig config_;
  const std::string base_dir_;
  const std::shared_ptr<LoadProgress> progress_;  // of every load; given up once the model is being freed
  std::atomic<Execution> execution_;
  std::atomic<bool> bounded_{false};  // of the current version
  std::vector<std::unique_ptr<SessionSlot>> slots_;
  std::atomic<uint64_t> next_session_{0};
  SessionStats refused_;  // requests that never reached a session
  Timeline timeline_;
  RequestWatch watch_;
  Batcher batcher_;
  std::vector<std::shared_ptr<Task>> serve_tasks_;  // [session]
  BatchStats batch_stats_;

  std::atomic<State> state_{State::kServing};
  std::atomic<bool> drained_{false};  // running requests have had their time
  std::atomic<bool> closed_{false};
  std::atomic<int64_t> in_flight_{0};
  mutable std::mutex idle_mutex_;
  std::condition_variable idle_;

  mutable std::mutex version_mutex_;
  std::shared_ptr<ModelVersion> version_;
  uint64_t generation_ = 0;
  std::vector<std::shared_ptr<ModelVersion>> retired_;
  Checkpoint checkpoint_;
  std::string update_error_;    // of the last attempt; empty if it succeeded
  std::string refused_update_;  // why a later checkpoint is not applied: incremental, or incomplete

  std::mutex update_mutex_;
  std::condition_variable update_wake_;
  bool stop_updates_ = false;
  std::thread updater_;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_MODEL_MODEL_H_
