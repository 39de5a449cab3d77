// SPDX-License-Identifier: Apache-2.0
// One TensorFlow session, which a model version owns. Its device shares variables and tables with the other sessions of
// the version.
//
// It runs callables, each made once for a set of outputs, so that no request looks up names or prunes the graph. Any
// number of threads may run them at once.
#ifndef PROCESSOR_RUNTIME_SESSION_SESSION_H_
#define PROCESSOR_RUNTIME_SESSION_SESSION_H_

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "src/base/signature.h"
#include "src/runtime/config/model_config.h"
#include "src/runtime/executor/executor_type.h"
#include "src/runtime/executor/inline_graph.h"
#include "src/runtime/executor/scratch_allocator.h"
#include "tensorflow/core/common_runtime/direct_session.h"
#include "tensorflow/core/framework/device.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/step_stats.pb.h"

namespace processor {

class SessionDevice;

struct SessionOptions {
  ExecutorChoice executor = ExecutorChoice::kAuto;
  /// Where the default executor runs ops that do not depend on each other; null: on the calling thread. It must outlive
  /// the session.
  tensorflow::thread::ThreadPoolInterface* inter_op_pool = nullptr;
  /// Tells the single-threaded executor that no signature changes a variable, so that each is read once.
  bool variables_are_constant = false;
  /// The tensor of a live model's view, which runs feed after the inputs of the signature; empty: none.
  std::string view;
};

class Session {
 public:
  /// A callable. It belongs to the session.
  struct Handle {
    tensorflow::Session::CallableHandle number = -1;
    InlineGraph* graph = nullptr;  // null if TensorFlow's session has to run it
    Executor executor = Executor::kDefault;
  };

  /// Creates the session on a device that wraps `base` with the pools of a slot. All must outlive it.
  static absl::Status Create(const tensorflow::GraphDef& graph, const SessionOptions& options, tensorflow::Device* base,
                             tensorflow::thread::ThreadPoolInterface* intra_op_pool, std::unique_ptr<Session>* session);
  ~Session();

  /// Makes the callable with that number, which the caller chooses in [0, kMaxCallables), unless it is made already.
  /// `outputs`: positions in the signature. A failure is not retried: later calls return the first status, unless
  /// memory was short.
  absl::Status Prepare(int callable, const Signature& signature, absl::Span<const int> outputs, Handle* handle);

  /// Runs a callable by the handle that Prepare() has given. `feeds` [signature inputs]. Cancellation::Current() of the
  /// calling thread stops it. `view`: what is fed as SessionOptions::view; null if that is empty. `metadata`: of a callable
  /// that traces; may be null.
  /// \return the reason of a cancellation that has stopped it, among others.
  absl::Status Run(Handle handle, const std::vector<tensorflow::Tensor>& feeds, const tensorflow::Tensor* view,
                   std::vector<tensorflow::Tensor>* outputs, tensorflow::RunMetadata* metadata = nullptr);

  /// Runs all outputs of a signature with full tracing.
  absl::Status RunTraced(const Signature& signature, const std::vector<tensorflow::Tensor>& feeds,
                         const tensorflow::Tensor* view, std::vector<tensorflow::Tensor>* outputs,
                         tensorflow::StepStats* stats);

  /// Sets the budget that pays for the memory of runs from now on. At first, none does.
  void Claim(ScratchUse use);

  /// TensorFlow's session, which restores variables by name.
  tensorflow::Session* tensorflow_session() { return session_.get(); }

  static constexpr int kMaxCallables = 4096;

 private:
  // The state of a callable; the handle is valid once it is kMade.
  struct Callable {
    enum State : int { kNotMade, kMade, kFailed };
    std::atomic<State> state{kNotMade};
    Handle handle;
  };

  Session() = default;
  absl::Status Make(const Signature& signature, absl::Span<const int> outputs, bool traced, Handle* handle);
  /// Why a callable could not be made: for one whose state is kFailed.
  absl::Status Failure(int callable);

  SessionDevice* device_ = nullptr;  // of the session
  tensorflow::ConfigProto config_;
  std::string view_;
  const tensorflow::DeviceMgr* devices_ = nullptr;  // of the session
  std::unique_ptr<tensorflow::DirectSession> session_;
  std::mutex mutex_;  // held while callables are made
  std::unique_ptr<Callable[]> callables_;
  std::map<const Signature*, absl::StatusOr<Handle>> traced_;

  std::mutex failures_mutex_;  // held briefly, unlike the other
  std::map<int, absl::Status> failures_;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_SESSION_SESSION_H_
