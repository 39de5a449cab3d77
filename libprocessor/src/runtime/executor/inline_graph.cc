// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/executor/inline_graph.h"

#include <atomic>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/platform/env_time.h"

namespace processor {
namespace {

// Far above the numbers of the steps that TensorFlow's sessions run.
std::atomic<int64_t> next_step{int64_t{1} << 62};

InlineGraphScope*& Innermost() {
  thread_local InlineGraphScope* innermost = nullptr;
  return innermost;
}

bool IsResource(tensorflow::DataType type) { return type == tensorflow::DT_RESOURCE; }

}  // namespace

InlineGraphScope::InlineGraphScope(const InlineSession& session) : session_(session), before_(Innermost()) {
  Innermost() = this;
}

InlineGraphScope::~InlineGraphScope() { Innermost() = before_; }

InlineGraphScope* InlineGraphScope::Current() { return Innermost(); }

bool NeedsSession(const tensorflow::Graph& graph) {
  for (const tensorflow::Node* node : graph.op_nodes()) {
    const std::string& op = node->type_string();
    if (node->IsArg() && IsResource(node->output_type(0))) return true;
    if (node->IsRetval() && IsResource(node->input_type(0))) return true;
    if (absl::StartsWith(op, "GetSession") || op == "DeleteSessionTensor" || absl::StartsWith(op, "Collective")) {
      return true;
    }
  }
  return false;
}

InlineStep::InlineStep(const InlineSession& session, tensorflow::ResourceMgr* resources)
    : config_(session.config),
      id_(next_step.fetch_add(1, std::memory_order_relaxed)),
      container_(id_, [resources](const std::string& name) { resources->Cleanup(name).IgnoreError(); }),
      rendezvous_(session.devices) {}

tensorflow::Executor::Args InlineStep::Begin(tensorflow::CallFrameInterface* frame,
                                             tensorflow::CancellationManager* cancellation) {
  tensorflow::Executor::Args args;
  args.step_id = id_;
  args.rendezvous = &rendezvous_;
  args.call_frame = frame;
  args.cancellation_manager = cancellation;
  args.session_config = config_;
  args.session_state = &session_state_;
  args.tensor_store = &tensor_store_;
  args.step_container = &container_;
  args.start_time_usecs = static_cast<int64_t>(tensorflow::EnvTime::NowMicros());
  args.runner = [](const tensorflow::Executor::Args::Closure& closure) { closure(); };
  args.run_all_kernels_inline = true;
  return args;
}

absl::Status InlineFrame::GetArg(int index, const tensorflow::Tensor** value) {
  if (index < 0 || static_cast<size_t>(index) >= num_args()) {
    return absl::InvalidArgumentError(absl::StrCat("argument ", index, ": ", num_args(), " were given"));
  }
  *value = static_cast<size_t>(index) == feeds_.size() ? last_ : &feeds_[index];
  return absl::OkStatus();
}

absl::Status InlineFrame::SetRetval(int index, const tensorflow::Tensor& value) {
  if (index < 0 || static_cast<size_t>(index) >= outputs_.size()) {
    return absl::InternalError(absl::StrCat("result ", index, ": the graph has ", outputs_.size()));
  }
  outputs_[index] = value;
  return absl::OkStatus();
}

}  // namespace processor
