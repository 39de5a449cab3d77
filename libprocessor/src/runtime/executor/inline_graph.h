// SPDX-License-Identifier: Apache-2.0
// Graphs that run on the calling thread without TensorFlow's session.
//
// A run through the session copies the names of all feeds and fetches, makes a rendezvous, and takes locks of the session:
// dozens of allocations for a request. The executor needs none of this. TensorFlow's session still makes the executor, and
// owns it.
#ifndef PROCESSOR_RUNTIME_EXECUTOR_INLINE_GRAPH_H_
#define PROCESSOR_RUNTIME_EXECUTOR_INLINE_GRAPH_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "src/runtime/executor/executor_type.h"
#include "tensorflow/core/common_runtime/executor.h"
#include "tensorflow/core/common_runtime/rendezvous_mgr.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/session_state.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/protobuf/config.pb.h"

namespace processor {

/// A graph of one callable. Any number of threads may run it at once.
class InlineGraph {
 public:
  virtual ~InlineGraph() = default;

  /// Runs a step as TensorFlow's session would. Cancellation::Current() of the calling thread stops it.
  /// `feeds` [arguments of the graph], without `last` if that is not null, which is the last one; `outputs` [results of the
  /// graph].
  virtual absl::Status RunInline(const std::vector<tensorflow::Tensor>& feeds, const tensorflow::Tensor* last,
                                 std::vector<tensorflow::Tensor>* outputs) = 0;
};

/// The parts of a session that its steps use. Both outlive the graphs of the session.
struct InlineSession {
  const tensorflow::ConfigProto* config = nullptr;
  const tensorflow::DeviceMgr* devices = nullptr;
};

/// Learns of the graph that the calling thread makes while the scope exists: TensorFlow makes executors through a factory,
/// which knows neither the session nor the callable.
class InlineGraphScope {
 public:
  explicit InlineGraphScope(const InlineSession& session);
  ~InlineGraphScope();
  InlineGraphScope(const InlineGraphScope&) = delete;
  InlineGraphScope& operator=(const InlineGraphScope&) = delete;

  /// The scope of the calling thread; null if it makes no callable.
  static InlineGraphScope* Current();

  const InlineSession& session() const { return session_; }
  /// The graph, or null if it needs the session. Executors of functions are made before that of the callable itself.
  InlineGraph* graph = nullptr;
  Executor executor = Executor::kDefault;

 private:
  const InlineSession session_;
  InlineGraphScope* const before_;
};

/// Whether the steps of a graph need the session: those that pass resources in or out, keep tensors in the session, or
/// work together with other processes.
bool NeedsSession(const tensorflow::Graph& graph);

/// The objects that TensorFlow expects a step to have, besides its tensors. One step of a graph uses them at a time; later
/// steps of the same graph reuse them.
class InlineStep {
 public:
  InlineStep(const InlineSession& session, tensorflow::ResourceMgr* resources);

  /// Returns what an executor is called with. `frame` and `cancellation` are those of the step.
  tensorflow::Executor::Args Begin(tensorflow::CallFrameInterface* frame,
                                   tensorflow::CancellationManager* cancellation);
  /// Gives back what the step has kept in its container.
  void End() { container_.CleanUp(); }

 private:
  const tensorflow::ConfigProto* const config_;
  const int64_t id_;
  tensorflow::ScopedStepContainer container_;
  tensorflow::PrivateIntraProcessRendezvous rendezvous_;
  tensorflow::SessionState session_state_;
  tensorflow::TensorStore tensor_store_;
};

/// The arguments and results of a step.
class InlineFrame : public tensorflow::CallFrameInterface {
 public:
  InlineFrame(const std::vector<tensorflow::Tensor>& feeds, const tensorflow::Tensor* last,
              std::vector<tensorflow::Tensor>* outputs)
      : feeds_(feeds), last_(last), outputs_(*outputs) {}

  size_t num_args() const override { return feeds_.size() + (last_ == nullptr ? 0 : 1); }
  size_t num_retvals() const override { return outputs_.size(); }
  absl::Status GetArg(int index, const tensorflow::Tensor** value) override;
  absl::Status SetRetval(int index, const tensorflow::Tensor& value) override;

 private:
  const std::vector<tensorflow::Tensor>& feeds_;
  const tensorflow::Tensor* const last_;
  std::vector<tensorflow::Tensor>& outputs_;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_EXECUTOR_INLINE_GRAPH_H_
