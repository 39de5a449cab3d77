// SPDX-License-Identifier: Apache-2.0
// The versions of a model, which owns them: the current one, replaced ones that requests still hold, and the thread
// that follows a checkpoint folder.
//
// A later checkpoint is loaded and warmed up beside the current version, and then replaces it. Requests take a reference
// without a lock. Once no request holds the replaced version, the following thread destroys it.
#ifndef PROCESSOR_RUNTIME_MODEL_MODEL_VERSIONS_H_
#define PROCESSOR_RUNTIME_MODEL_MODEL_VERSIONS_H_

#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "src/base/published.h"
#include "src/runtime/config/model_config.h"
#include "src/runtime/session/session_slots.h"
#include "src/runtime/version/load_progress.h"
#include "src/runtime/version/model_version.h"

namespace processor {

class ModelVersions {
 public:
  /// Configuration and slots are borrowed. `base_dir` is where relative paths of the configuration begin; it may be empty.
  ModelVersions(const ModelConfig& config, std::string base_dir, const SessionSlots& slots,
                std::shared_ptr<LoadProgress> progress);

  /// Loads the first version and warms it up; then starts to follow `checkpoint_dir`, if there is one. Called once.
  absl::Status Start();

  /// Cancels the load of the model, also what follows it.
  const Cancellation& load_cancellation() const { return progress_->cancellation; }

  /// The version that new requests use; null before Start() and after Release(). Any thread may call.
  std::shared_ptr<ModelVersion> current() const { return current_.Read(); }
  /// Whether the work of a request is bounded by its size, as the graph of the current version has no loops.
  bool bounded() const { return bounded_.load(std::memory_order_relaxed); }

  /// The state of following the folder.
  struct Following {
    std::string error;    // of the last attempt; empty if it succeeded
    std::string refused;  // why a later checkpoint is not applied: it is incomplete
    size_t retired = 0;   // replaced versions that requests still hold
  };
  Following following() const;

  /// Cancels a load that is running, and ends the thread.
  void Stop() noexcept;
  /// Destroys all versions. After Stop(), when no request is left.
  void Release() noexcept;

 private:
  absl::Status FindSource(VersionSource* source);
  absl::Status WaitForSource(VersionSource* source);
  absl::Status Load(const VersionSource& source, bool background);
  void Follow();
  void TryUpdate();
  absl::Status Update();
  /// Takes the increment out of a source that could not be loaded with it. \return false if it has none.
  bool LeaveIncrement(const absl::Status& why, VersionSource* source);
  void DestroyUnused();
  /// Sets one of the texts of Following.
  /// \return whether it has changed and is not empty.
  bool SetText(std::string* text, const std::string& found);

  const ModelConfig& config_;
  const std::string base_dir_;
  const SessionSlots& slots_;
  const std::shared_ptr<LoadProgress> progress_;  // of every load; canceled when the model is freed
  std::atomic<bool> bounded_{false};

  Published<ModelVersion> current_;
  uint64_t generation_ = 0;  // of the thread that loads

  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<ModelVersion>> retired_;
  std::string error_, refused_;

  std::mutex stop_mutex_;
  std::condition_variable stop_wake_;
  bool stopped_ = false;
  std::thread follower_;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_MODEL_MODEL_VERSIONS_H_
