// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/executor/sequential_executor.h"

#include <algorithm>
#include <cstdint>
#include <deque>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/base/kept_objects.h"
#include "src/kernels/prepared_kernel.h"
#include "src/runtime/executor/inline_graph.h"
#include "src/runtime/executor/step_cancellation.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_handle.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/framework/resource_var.h"
#include "tensorflow/core/graph/algorithm.h"

namespace processor {
namespace {

using tensorflow::Edge;
using tensorflow::Graph;
using tensorflow::Node;
using tensorflow::OpKernel;
using tensorflow::Tensor;
using tensorflow::TensorValue;

// How many nodes ahead kernels are prefetched, and how many bytes of each: the fields that all kernels have.
constexpr size_t kFetchAhead = 4;
constexpr size_t kFetchBytes = 320;

// One kernel. Its inputs are `inputs[first_input ... + num_inputs)` of a step; output j goes to the inputs
// `consumers[first_consumer[j] ... first_consumer[j + 1])`.
struct NodeState {
  OpKernel* kernel;
  uint32_t first_input;
  uint32_t num_inputs;
  uint32_t num_outputs;
  uint32_t first_output;  // in consumer_begin_
};

// The tensors that pass between the kernels of one step. It is reused by later steps: values of constants stay.
struct Step {
  explicit Step(size_t num_inputs) : values(num_inputs), slots(std::make_unique<Slot[]>(num_inputs)) {}
  ~Step() {
    for (size_t i = 0; i < values.size(); ++i) Drop(i);
  }

  Tensor* At(size_t input) { return reinterpret_cast<Tensor*>(&slots[input]); }

  void Put(size_t input, const Tensor& tensor) { values[input].tensor = new (&slots[input]) Tensor(tensor); }
  void Put(size_t input, Tensor&& tensor) { values[input].tensor = new (&slots[input]) Tensor(std::move(tensor)); }

  // Releases the tensor of an input, unless it is a constant.
  void Drop(size_t input) {
    Tensor* tensor = At(input);
    if (values[input].tensor != tensor) return;
    tensor->~Tensor();
    values[input].tensor = nullptr;
  }

  struct alignas(Tensor) Slot {
    unsigned char bytes[sizeof(Tensor)];
  };
  std::vector<TensorValue> values;
  std::unique_ptr<Slot[]> slots;
  std::optional<InlineStep> inline_step;  // if the step runs without the session
};

class SequentialExecutor : public tensorflow::Executor, public InlineGraph {
 public:
  /// `session`: what steps without the session need.
  SequentialExecutor(const tensorflow::LocalExecutorParams& params, bool variables_are_constant,
                     const std::string& type, const InlineSession& session)
      : params_(params), variables_are_constant_(variables_are_constant), type_(type), session_(session) {}

  ~SequentialExecutor() override {
    for (OpKernel* kernel : kernels_) params_.delete_kernel(kernel);
  }

  absl::Status Initialize(const Graph& graph);

  absl::Status Run(const Args& args) override {
    const StepCancellation cancellation(args.cancellation_manager);
    std::unique_ptr<Step> step = TakeStep();
    const absl::Status status = RunStep(args, *step);
    // After a failure, tensors remain in the step and are destroyed with it.
    if (status.ok()) idle_steps_.Keep(std::move(step));
    return status;
  }

  absl::Status RunInline(const std::vector<Tensor>& feeds, const Tensor* last, std::vector<Tensor>* outputs) override {
    outputs->clear();
    outputs->resize(num_results_);
    tensorflow::CancellationManager manager;
    InlineFrame frame(feeds, last, outputs);
    std::unique_ptr<Step> step = TakeStep();
    if (!step->inline_step.has_value()) step->inline_step.emplace(session_, params_.device->resource_manager());
    const StepCancellation cancellation(&manager);
    const absl::Status status = RunStep(step->inline_step->Begin(&frame, &manager), *step);
    step->inline_step->End();
    if (status.ok()) idle_steps_.Keep(std::move(step));
    return status;
  }

 private:
  struct Argument {
    int index;
    uint32_t output;  // in consumer_begin_
  };

  void RunAsyncInternal(const Args& args, DoneCallback done) override { done(Run(args)); }

  const Tensor* ConstantOf(const Node& node, OpKernel* kernel);
  absl::Status PrepareKernels();

  std::unique_ptr<Step> TakeStep();
  absl::Status RunStep(const Args& args, Step& step);
  absl::Status FeedArguments(const Args& args, Step& step) const;
  void Deliver(Tensor&& tensor, uint32_t output, Step& step) const;

  const tensorflow::LocalExecutorParams params_;
  const bool variables_are_constant_;
  const std::string& type_;
  const InlineSession session_;
  std::vector<OpKernel*> kernels_;  // all kernels, also those of constants, which are not run
  std::vector<NodeState> nodes_;
  std::vector<uint32_t> consumer_begin_;  // [outputs + 1]
  std::vector<uint32_t> consumers_;       // the inputs that receive an output
  std::vector<Argument> arguments_;
  // An additional reference to each tensor: a tensor with only one reference would be overwritten.
  std::deque<Tensor> constants_;
  std::vector<std::pair<uint32_t, const Tensor*>> constant_inputs_;
  std::vector<tensorflow::AllocatorAttributes> attributes_;  // default ones, enough for any node
  size_t num_inputs_ = 0;
  size_t num_results_ = 0;

  KeptObjects<Step> idle_steps_;
};

// Returns the value of a node if it is the same in every step; null if that is not known.
const Tensor* SequentialExecutor::ConstantOf(const Node& node, OpKernel* kernel) {
  if (const Tensor* constant = kernel->const_tensor()) {
    constants_.push_back(*constant);
    return &constants_.back();
  }
  if (!variables_are_constant_ || node.type_string() != "ReadVariableOp") return nullptr;
  const Edge* handle_edge = nullptr;
  if (!node.input_edge(0, &handle_edge).ok()) return nullptr;
  const Node& source = *handle_edge->src();
  std::string container, name;
  if (source.type_string() != "VarHandleOp" || !GetNodeAttr(source.attrs(), "container", &container).ok() ||
      !GetNodeAttr(source.attrs(), "shared_name", &name).ok()) {
    return nullptr;
  }
  tensorflow::ResourceMgr* resources = params_.device->resource_manager();
  if (container.empty()) container = resources->default_container();
  if (name.empty()) name = source.name();
  tensorflow::Var* found = nullptr;
  if (!resources->Lookup(container, name, &found).ok()) return nullptr;
  const tensorflow::core::RefCountPtr<tensorflow::Var> variable(found);
  tensorflow::tf_shared_lock lock(*variable->mu());
  if (!variable->is_initialized || variable->tensor()->dtype() != node.output_type(0)) return nullptr;
  constants_.push_back(*variable->tensor());
  return &constants_.back();
}

absl::Status SequentialExecutor::Initialize(const Graph& graph) {
  std::vector<Node*> order;
  tensorflow::GetReversePostOrder(graph, &order);

  // Assigns places to the inputs and outputs of each node, before they are connected.
  std::vector<uint32_t> first_input(graph.num_node_ids(), 0), first_output(graph.num_node_ids(), 0);
  uint32_t num_outputs = 0;
  size_t widest = 1;
  for (const Node* node : order) {
    if (!node->IsOp()) continue;
    first_input[node->id()] = static_cast<uint32_t>(num_inputs_);
    first_output[node->id()] = num_outputs;
    num_inputs_ += node->num_inputs();
    num_outputs += node->num_outputs();
    widest =
        std::max<size_t>({widest, static_cast<size_t>(node->num_inputs()), static_cast<size_t>(node->num_outputs())});
  }
  attributes_.resize(widest);

  for (const Node* node : order) {
    if (!node->IsOp()) continue;
    // Outputs are visited in the order of their numbers, so that consumer_begin_ grows with them.
    std::vector<std::vector<uint32_t>> destinations(node->num_outputs());
    for (const Edge* edge : node->out_edges()) {
      if (edge->IsControlEdge() || !edge->dst()->IsOp()) continue;
      destinations[edge->src_output()].push_back(first_input[edge->dst()->id()] +
                                                 static_cast<uint32_t>(edge->dst_input()));
    }
    for (const auto& list : destinations) {
      consumer_begin_.push_back(static_cast<uint32_t>(consumers_.size()));
      consumers_.insert(consumers_.end(), list.begin(), list.end());
    }

    if (node->IsRetval()) ++num_results_;
    if (node->IsArg()) {
      int index = 0;
      if (absl::Status s = GetNodeAttr(node->attrs(), "index", &index); !s.ok()) return s;
      arguments_.push_back({index, first_output[node->id()]});
      continue;
    }
    OpKernel* kernel = nullptr;
    if (absl::Status s = params_.create_kernel(node->properties(), &kernel); !s.ok()) {
      return absl::Status(s.code(), absl::StrCat("node '", node->name(), "': ", s.message()));
    }
    kernels_.push_back(kernel);
    if (const Tensor* constant = ConstantOf(*node, kernel)) {
      for (uint32_t input : destinations[0]) constant_inputs_.emplace_back(input, constant);
      continue;
    }
    nodes_.push_back({kernel, first_input[node->id()], static_cast<uint32_t>(node->num_inputs()),
                      static_cast<uint32_t>(node->num_outputs()), first_output[node->id()]});
  }
  consumer_begin_.push_back(static_cast<uint32_t>(consumers_.size()));
  return PrepareKernels();
}

// Lets kernels prepare their constants, so that no request waits for it.
absl::Status SequentialExecutor::PrepareKernels() {
  std::vector<const Tensor*> constants(num_inputs_, nullptr);
  for (const auto& [input, constant] : constant_inputs_) constants[input] = constant;
  for (const NodeState& node : nodes_) {
    auto* prepared = dynamic_cast<PreparedKernel*>(node.kernel);
    if (prepared == nullptr) continue;
    const auto inputs = absl::MakeConstSpan(constants).subspan(node.first_input, node.num_inputs);
    if (absl::Status s = prepared->Prepare(inputs, params_.device->resource_manager()); !s.ok()) {
      return absl::Status(s.code(), absl::StrCat("node '", node.kernel->name(), "': ", s.message()));
    }
  }
  return absl::OkStatus();
}

std::unique_ptr<Step> SequentialExecutor::TakeStep() {
  if (std::unique_ptr<Step> step = idle_steps_.TakeIfAny()) return step;
  auto step = std::make_unique<Step>(num_inputs_);
  // TensorValue is not const, but kernels cannot write to a tensor with more than one reference.
  for (const auto& [input, constant] : constant_inputs_) step->values[input].tensor = const_cast<Tensor*>(constant);
  return step;
}

void SequentialExecutor::Deliver(Tensor&& tensor, uint32_t output, Step& step) const {
  const uint32_t begin = consumer_begin_[output], end = consumer_begin_[output + 1];
  if (begin == end) return;
  for (uint32_t i = begin; i + 1 < end; ++i) step.Put(consumers_[i], tensor);
  // The last consumer gets the tensor moved, so that it may hold the only reference and overwrite it in place.
  step.Put(consumers_[end - 1], std::move(tensor));
}

absl::Status SequentialExecutor::FeedArguments(const Args& args, Step& step) const {
  const int given = args.call_frame == nullptr ? 0 : static_cast<int>(args.call_frame->num_args());
  for (const Argument& argument : arguments_) {
    if (argument.index < 0 || argument.index >= given) {
      return absl::InvalidArgumentError(absl::StrCat("argument ", argument.index, ": ", given, " were given"));
    }
    const Tensor* value = nullptr;
    if (absl::Status s = args.call_frame->GetArg(argument.index, &value); !s.ok()) return s;
    Deliver(Tensor(*value), argument.output, step);
  }
  return absl::OkStatus();
}

absl::Status SequentialExecutor::RunStep(const Args& args, Step& step) {
  tensorflow::OpKernelContext::Params params;
  params.step_id = args.step_id;
  params.start_time_usecs = args.start_time_usecs;
  params.deadline = args.deadline;
  params.device = params_.device;
  params.rendezvous = args.rendezvous;
  params.collective_executor = args.collective_executor;
  params.session_config = args.session_config;
  params.session_state = args.session_state;
  params.session_handle = args.session_handle;
  params.session_metadata = params_.session_metadata;
  params.tensor_store = args.tensor_store;
  params.cancellation_manager = args.cancellation_manager;
  params.coordination_service_agent = args.coordination_service_agent;
  params.call_frame = args.call_frame;
  params.function_library = params_.function_library;
  params.resource_manager = params_.device->resource_manager();
  params.step_container = args.step_container;
  Args::Runner runner = args.runner;
  params.runner = &runner;
  params.run_all_kernels_inline = args.run_all_kernels_inline;
  params.stats_collector = args.stats_collector;
  params.executor_type = &type_;
  params.frame_iter = tensorflow::FrameAndIter(0, 0);
  params.output_attr_array = attributes_.data();

  if (absl::Status s = FeedArguments(args, step); !s.ok()) return s;
  for (size_t n = 0; n < nodes_.size(); ++n) {
    if (n + kFetchAhead < nodes_.size()) {
      const char* next = reinterpret_cast<const char*>(nodes_[n + kFetchAhead].kernel);
      for (size_t byte = 0; byte < kFetchBytes; byte += 64) __builtin_prefetch(next + byte);
    }
    const NodeState& node = nodes_[n];
    params.op_kernel = node.kernel;
    params.inputs = absl::MakeConstSpan(&step.values[node.first_input], node.num_inputs);
    params.input_alloc_attrs = absl::MakeConstSpan(attributes_.data(), node.num_inputs);
    tensorflow::OpKernelContext context(&params, static_cast<int>(node.num_outputs));
    params_.device->Compute(node.kernel, &context);
    if (!context.status().ok()) return context.status();
    for (uint32_t i = 0; i < node.num_inputs; ++i) step.Drop(node.first_input + i);
    for (uint32_t j = 0; j < node.num_outputs; ++j) {
      const std::unique_ptr<Tensor> output(context.release_output(static_cast<int>(j)).tensor);
      const uint32_t at = node.first_output + j;
      if (output != nullptr) {
        Deliver(std::move(*output), at, step);
      } else if (consumer_begin_[at] != consumer_begin_[at + 1]) {
        return absl::InternalError(absl::StrCat("node '", node.kernel->name(), "': output ", j, " was not set"));
      }
    }
  }
  return absl::OkStatus();
}

// Returns whether a kernel of the op may wait until another op of the graph, or another request, has run.
bool WaitsForOthers(const std::string& op) {
  static const auto* const prefixes = new std::vector<std::string>{
      "QueueDequeue", "QueueEnqueue", "Barrier", "Stage",     "Unstage",       "MapStage",   "MapUnstage",
      "MapPeek",      "OrderedMap",   "Unbatch", "MutexLock", "BatchFunction", "RecordInput"};
  if (op == "Batch" || absl::EndsWith(op, "TakeGradient")) return true;
  return std::any_of(prefixes->begin(), prefixes->end(),
                     [&](const std::string& prefix) { return absl::StartsWith(op, prefix); });
}

}  // namespace

absl::Status CheckSequential(const Graph& graph) {
  for (const Node* node : graph.op_nodes()) {
    const auto refuse = [&](const char* what) {
      return absl::UnimplementedError(absl::StrCat("node '", node->name(), "': ", what));
    };
    if (node->IsControlFlow()) return refuse("control flow, which one thread cannot run in order");
    if (node->IsSend() || node->IsRecv()) return refuse("a transfer between devices");
    if (WaitsForOthers(node->type_string())) return refuse("an op that waits for others");
    for (tensorflow::DataType type : node->output_types()) {
      if (tensorflow::IsRefType(type)) return refuse("an output by reference");
    }
  }
  return absl::OkStatus();
}

absl::Status NewSequentialExecutor(const tensorflow::LocalExecutorParams& params, const Graph& graph,
                                   bool variables_are_constant, const std::string& type,
                                   std::unique_ptr<tensorflow::Executor>* executor) {
  InlineGraphScope* const scope = InlineGraphScope::Current();
  auto made = std::make_unique<SequentialExecutor>(params, variables_are_constant, type,
                                                   scope == nullptr ? InlineSession() : scope->session());
  if (absl::Status s = made->Initialize(graph); !s.ok()) return s;
  if (scope != nullptr) scope->graph = NeedsSession(graph) ? nullptr : made.get();
  *executor = std::move(made);
  return absl::OkStatus();
}

}  // namespace processor
