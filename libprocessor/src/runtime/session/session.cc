// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/session/session.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "src/runtime/requests/cancellation.h"
#include "src/runtime/session/session_device.h"
#include "tensorflow/core/common_runtime/device_mgr.h"
#include "tensorflow/core/public/session_options.h"

namespace processor {
namespace {

tensorflow::SessionOptions TensorFlowOptions(const SessionOptions& options) {
  tensorflow::SessionOptions result;
  tensorflow::ConfigProto& config = result.config;
  config.set_allow_soft_placement(true);  // graphs may name devices that existed in training
  // Kernels use the device's pool, not TensorFlow's own, whose size the first session of the process decides.
  config.set_inter_op_parallelism_threads(options.inter_op_pool == nullptr ? -1 : options.inter_op_pool->NumThreads());
  config.mutable_experimental()->set_executor_type(
      ExecutorType({options.executor, options.variables_are_constant, options.inter_op_pool != nullptr}));
  // The graph is never extended, so TensorFlow need not keep a copy for that.
  config.mutable_experimental()->set_optimize_for_static_graph(true);
  config.mutable_experimental()->set_disable_output_partition_graphs(true);
  return result;
}

// Returns whether a failure says nothing about the graph.
bool IsTransient(const absl::Status& status) { return absl::IsResourceExhausted(status); }

}  // namespace

absl::Status Session::Create(const tensorflow::GraphDef& graph, const SessionOptions& options, tensorflow::Device* base,
                             tensorflow::thread::ThreadPoolInterface* intra_op_pool,
                             std::unique_ptr<Session>* session) {
  std::unique_ptr<Session> result(new Session);
  std::vector<std::unique_ptr<tensorflow::Device>> devices;
  auto device = std::make_unique<SessionDevice>(base, intra_op_pool, options.inter_op_pool);
  result->device_ = device.get();
  devices.push_back(std::move(device));
  const tensorflow::SessionOptions tensorflow_options = TensorFlowOptions(options);
  result->config_ = tensorflow_options.config;
  result->view_ = options.view;
  auto* const device_manager = new tensorflow::StaticDeviceMgr(std::move(devices));
  result->devices_ = device_manager;
  result->session_ = std::make_unique<tensorflow::DirectSession>(tensorflow_options, device_manager, nullptr);
  result->callables_ = std::make_unique<Callable[]>(kMaxCallables);
  if (absl::Status status = result->session_->Create(graph); !status.ok()) return status;
  *session = std::move(result);
  return absl::OkStatus();
}

Session::~Session() {
  if (session_ != nullptr) session_->Close().IgnoreError();
}

void Session::Claim(ScratchUse use) { device_->Claim(use); }

absl::Status Session::Make(const Signature& signature, absl::Span<const int> outputs, bool traced, Handle* handle) {
  tensorflow::CallableOptions options;
  for (const TensorSpec& input : signature.inputs()) options.add_feed(input.tensor_name);
  if (!view_.empty()) options.add_feed(view_);
  for (int output : outputs) options.add_fetch(signature.outputs()[output].tensor_name);
  if (traced) options.mutable_run_options()->set_trace_level(tensorflow::RunOptions::FULL_TRACE);
  const InlineGraphScope scope({&config_, devices_});
  const absl::Status status = session_->MakeCallable(options, &handle->number);
  handle->graph = traced ? nullptr : scope.graph;
  handle->executor = scope.executor;
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat("signature '", signature.name(), "': ", status.message()));
}

absl::Status Session::Prepare(int callable, const Signature& signature, absl::Span<const int> outputs, Handle* handle) {
  Callable& made = callables_[callable];
  Callable::State state = made.state.load(std::memory_order_acquire);
  if (state == Callable::kNotMade) {
    std::lock_guard<std::mutex> lock(mutex_);
    state = made.state.load(std::memory_order_relaxed);
    if (state == Callable::kNotMade) {
      const absl::Status status = Make(signature, outputs, /*traced=*/false, &made.handle);
      if (IsTransient(status)) return status;
      state = status.ok() ? Callable::kMade : Callable::kFailed;
      if (!status.ok()) {
        std::lock_guard<std::mutex> failures_lock(failures_mutex_);
        failures_.emplace(callable, status);
      }
      made.state.store(state, std::memory_order_release);
    }
  }
  if (state == Callable::kFailed) return Failure(callable);
  *handle = made.handle;
  return absl::OkStatus();
}

absl::Status Session::Failure(int callable) {
  std::lock_guard<std::mutex> lock(failures_mutex_);
  return failures_.at(callable);
}

absl::Status Session::Run(Handle handle, const std::vector<tensorflow::Tensor>& feeds, const tensorflow::Tensor* view,
                          std::vector<tensorflow::Tensor>* outputs, tensorflow::RunMetadata* metadata) {
  const auto run = [&] {
    if (handle.graph != nullptr) return handle.graph->RunInline(feeds, view, outputs);
    if (view == nullptr) return session_->RunCallable(handle.number, feeds, outputs, metadata);
    std::vector<tensorflow::Tensor> all_feeds = feeds;
    all_feeds.push_back(*view);
    return session_->RunCallable(handle.number, all_feeds, outputs, metadata);
  };
  Cancellation* const cancellation = Cancellation::Current();
  if (cancellation == nullptr) return run();
  if (cancellation->requested()) return cancellation->why();
  const absl::Status status = run();
  // A step that was canceled during its last kernel may report success, and kernels that stop midway leave outputs
  // unfinished: such outputs are never returned.
  return cancellation->requested() ? cancellation->why() : status;
}

absl::Status Session::RunTraced(const Signature& signature, const std::vector<tensorflow::Tensor>& feeds,
                                const tensorflow::Tensor* view, std::vector<tensorflow::Tensor>* outputs,
                                tensorflow::StepStats* stats) {
  Handle handle;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    auto found = traced_.find(&signature);
    if (found == traced_.end()) {
      std::vector<int> all;
      for (size_t i = 0; i < signature.outputs().size(); ++i) all.push_back(static_cast<int>(i));
      const absl::Status status = Make(signature, all, /*traced=*/true, &handle);
      if (IsTransient(status)) return status;
      found = status.ok() ? traced_.emplace(&signature, handle).first : traced_.emplace(&signature, status).first;
    }
    if (!found->second.ok()) return found->second.status();
    handle = *found->second;
  }
  tensorflow::RunMetadata metadata;
  const absl::Status status = Run(handle, feeds, view, outputs, &metadata);
  stats->Swap(metadata.mutable_step_stats());
  return status;
}

}  // namespace processor
