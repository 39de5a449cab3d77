// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/rows/row_graph.h"

#include <deque>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/common_runtime/eval_const_tensor.h"
#include "tensorflow/core/common_runtime/function_def_utils.h"
#include "tensorflow/core/common_runtime/graph_constructor.h"
#include "tensorflow/core/common_runtime/inline_function_utils.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/graph/tensor_id.h"

namespace processor {
namespace {

using tensorflow::Edge;
using tensorflow::GraphDef;
using tensorflow::Node;
using tensorflow::NodeDef;
using tensorflow::Tensor;
using tensorflow::shape_inference::DimensionHandle;
using tensorflow::shape_inference::InferenceContext;
using tensorflow::shape_inference::ShapeHandle;

// Two arbitrary numbers of rows: a size that differs between them depends on the number of rows.
constexpr int64_t kRowNumbers[2] = {37, 41};
// Values for other open sizes of a signature, a different one for each: a model whose rows are independent for one
// length of its lists is so for others, since rules use sizes only to distinguish rows from other dimensions.
constexpr int64_t kFirstOpenSize = 43;
constexpr int64_t kMostNumbers = 256;
constexpr size_t kLargeConstant = 1 << 12;
constexpr int kMostCalls = 1 << 14;
constexpr char kInputPrefix[] = "processor_row_input_", kOutputPrefix[] = "processor_row_output_";

// Returns a copy without the values of large constants, which do not matter for rows.
void CopyNode(const NodeDef& src, NodeDef* dst) {
  const auto value = src.op() == "Const" ? src.attr().find("value") : src.attr().end();
  if (value == src.attr().end() || value->second.tensor().ByteSizeLong() < kLargeConstant) {
    *dst = src;
    return;
  }
  dst->set_name(src.name());
  dst->set_op("Placeholder");
  (*dst->mutable_attr())["dtype"].set_type(value->second.tensor().dtype());
  *(*dst->mutable_attr())["shape"].mutable_shape() = value->second.tensor().tensor_shape();
  for (const std::string& input : src.input()) *dst->add_input() = input;
}

tensorflow::FunctionDefLibrary CopyFunctions(const tensorflow::FunctionDefLibrary& src) {
  tensorflow::FunctionDefLibrary library;
  for (const tensorflow::FunctionDef& function : src.function()) {
    tensorflow::FunctionDef* copy = library.add_function();
    *copy->mutable_signature() = function.signature();
    *copy->mutable_attr() = function.attr();
    *copy->mutable_arg_attr() = function.arg_attr();
    *copy->mutable_ret() = function.ret();
    *copy->mutable_control_ret() = function.control_ret();
    *copy->mutable_resource_arg_unique_id() = function.resource_arg_unique_id();
    for (const NodeDef& node : function.node_def()) CopyNode(node, copy->add_node_def());
  }
  return library;
}

// Returns the nodes that the outputs of a signature need, with placeholders instead of its inputs.
absl::Status Cut(const GraphDef& graph, const Signature& signature, GraphDef* dst) {
  std::map<std::string_view, const NodeDef*> nodes;
  for (const NodeDef& node : graph.node()) nodes[node.name()] = &node;
  std::map<std::pair<std::string_view, int>, int> fed;
  for (size_t i = 0; i < signature.inputs().size(); ++i) {
    const tensorflow::TensorId id = tensorflow::ParseTensorName(signature.inputs()[i].tensor_name);
    fed[{id.node(), id.index()}] = static_cast<int>(i);
    NodeDef* input = dst->add_node();
    input->set_name(absl::StrCat(kInputPrefix, i));
    input->set_op("Placeholder");
    (*input->mutable_attr())["dtype"].set_type(signature.inputs()[i].dtype);
  }
  std::deque<std::string_view> pending;
  std::set<std::string_view> seen;
  const auto use = [&](std::string_view input) {
    const tensorflow::TensorId id = tensorflow::ParseTensorName(input);
    const auto found = fed.find({id.node(), id.index()});
    if (found != fed.end()) return absl::StrCat(kInputPrefix, found->second);
    if (seen.insert(id.node()).second) pending.push_back(id.node());
    return std::string(input);
  };
  for (size_t i = 0; i < signature.outputs().size(); ++i) {
    const TensorSpec& spec = signature.outputs()[i];
    NodeDef* output = dst->add_node();
    output->set_name(absl::StrCat(kOutputPrefix, i));
    output->set_op("Identity");
    *output->add_input() = use(spec.tensor_name);
    (*output->mutable_attr())["T"].set_type(spec.dtype);
  }
  for (; !pending.empty(); pending.pop_front()) {
    const auto node = nodes.find(pending.front());
    if (node == nodes.end()) return absl::InvalidArgumentError(absl::StrCat("'", pending.front(), "': no such node"));
    NodeDef* copy = dst->add_node();
    CopyNode(*node->second, copy);
    copy->clear_input();
    copy->clear_device();
    for (const std::string& input : node->second->input()) {
      // Control dependencies do not affect values.
      if (!absl::StartsWith(input, "^")) *copy->add_input() = use(input);
    }
    // A colocation may refer to a node that is left out.
    copy->mutable_attr()->erase("_class");
  }
  *dst->mutable_versions() = graph.versions();
  return absl::OkStatus();
}

}  // namespace

absl::Status RowGraph::Make(const tensorflow::MetaGraphDef& meta_graph, const Signature& signature,
                            std::unique_ptr<RowGraph>* graph) {
  std::unique_ptr<RowGraph> result(new RowGraph);
  result->signature_ = &signature;
  GraphDef part;
  if (absl::Status s = Cut(meta_graph.graph_def(), signature, &part); !s.ok()) return s;
  result->functions_ = std::make_unique<tensorflow::FunctionLibraryDefinition>(
      tensorflow::OpRegistry::Global(), CopyFunctions(meta_graph.graph_def().library()));
  result->graph_ = std::make_unique<tensorflow::Graph>(*result->functions_);
  tensorflow::GraphConstructorOptions options;
  options.allow_internal_ops = true;
  if (absl::Status s = tensorflow::ConvertGraphDefToGraph(options, std::move(part), result->graph_.get()); !s.ok()) {
    return s;
  }
  if (absl::Status s = result->InlineCalls(*result->functions_); !s.ok()) return s;
  result->Order();
  for (auto& shapes : result->shapes_) {
    shapes = std::make_unique<tensorflow::ShapeRefiner>(result->graph_->versions(), result->graph_->op_registry());
    shapes->set_require_shape_inference_fns(false);
  }
  *graph = std::move(result);
  return absl::OkStatus();
}

absl::Status RowGraph::InlineCalls(const tensorflow::FunctionLibraryDefinition& functions) {
  tensorflow::InlineFunctionBodyOptions options;
  options.ignore_noinline = true;
  options.output_control_src = tensorflow::InlineFunctionBodyOptions::OutputControlSource::kControlOutputs;
  options.inlined_function_body_placer = tensorflow::InlinedFunctionBodyPlacer::SingleDevice();
  int calls = 0;
  for (bool found = true; found;) {
    found = false;
    std::vector<Node*> callers;
    for (Node* node : graph_->op_nodes()) callers.push_back(node);
    for (Node* node : callers) {
      tensorflow::NameAttrList function;
      if (node->IsPartitionedCall()) {
        if (absl::Status s = tensorflow::GetNodeAttr(node->attrs(), "f", &function); !s.ok()) return s;
      } else if (functions.Contains(node->type_string())) {
        function.set_name(node->type_string());
        *function.mutable_attr() = node->def().attr();
      } else {
        continue;
      }
      const tensorflow::FunctionDef* def = functions.Find(function.name());
      if (def == nullptr) return absl::NotFoundError(absl::StrCat("function '", function.name(), "'"));
      if (++calls > kMostCalls) return absl::ResourceExhaustedError("too many calls of functions");
      std::unique_ptr<tensorflow::FunctionBody> body;
      if (absl::Status s =
              tensorflow::FunctionDefToBodyHelper(*def, tensorflow::AttrSlice(&function.attr()), &functions, &body);
          !s.ok()) {
        return s;
      }
      if (absl::Status s = tensorflow::InlineFunctionBody(functions, graph_.get(), node, body.get(), options);
          !s.ok()) {
        return s;
      }
      found = true;
    }
  }
  return absl::OkStatus();
}

void RowGraph::Order() {
  std::map<const Node*, int> missing;
  std::deque<const Node*> ready;
  for (const Node* node : graph_->op_nodes()) {
    int inputs = 0;
    for (const Edge* edge : node->in_edges()) inputs += edge->IsControlEdge() ? 0 : 1;
    missing[node] = inputs;
    if (inputs == 0) ready.push_back(node);
  }
  for (; !ready.empty(); ready.pop_front()) {
    order_.push_back(ready.front());
    for (const Edge* edge : ready.front()->out_edges()) {
      if (!edge->IsControlEdge() && --missing[edge->dst()] == 0) ready.push_back(edge->dst());
    }
  }
}

int RowGraph::InputOf(const Node& node) const {
  int number = -1;
  const std::string_view name = node.name();
  return absl::StartsWith(name, kInputPrefix) && absl::SimpleAtoi(name.substr(sizeof(kInputPrefix) - 1), &number)
             ? number
             : -1;
}

const Node* RowGraph::OutputNode(int index) const {
  const std::string name = absl::StrCat(kOutputPrefix, index);
  for (const Node* node : order_) {
    if (node->name() == name) return node;
  }
  return nullptr;
}

bool RowGraph::Visit(const Node& node) {
  for (const auto& shapes : shapes_) {
    if (!shapes->AddNode(&node).ok()) return false;
  }
  const int input = InputOf(node);
  if (input < 0) return true;
  const tensorflow::PartialTensorShape& shape = signature_->inputs()[input].shape;
  if (shape.unknown_rank()) return true;
  std::vector<SizePair> sizes;
  for (int i = 0; i < shape.dims(); ++i) {
    const int64_t size = shape.dim_size(i), open = kFirstOpenSize + 2 * i;
    sizes.push_back(i == 0      ? SizePair{kRowNumbers[0], kRowNumbers[1]}
                    : size >= 0 ? SizePair{size, size}
                                : SizePair{open, open});
  }
  SetShape(node, 0, sizes);
  return true;
}

void RowGraph::SetShape(const Node& node, int output, const std::vector<SizePair>& shape) {
  for (int i = 0; i < 2; ++i) {
    InferenceContext* const context = shapes_[i]->GetContext(&node);
    if (context == nullptr) return;
    std::vector<DimensionHandle> sizes;
    for (const SizePair& dim : shape) {
      const int64_t size = i == 0 ? dim.first : dim.second;
      sizes.push_back(size < 0 ? context->UnknownDim() : context->MakeDim(size));
    }
    shapes_[i]->SetShape(&node, output, context->MakeShape(sizes)).IgnoreError();
  }
}

SizePairs RowGraph::Shape(const Node& node, int output) const {
  InferenceContext* const contexts[2] = {shapes_[0]->GetContext(&node), shapes_[1]->GetContext(&node)};
  if (contexts[0] == nullptr || contexts[1] == nullptr || output >= contexts[0]->num_outputs()) return std::nullopt;
  const ShapeHandle first = contexts[0]->output(output), second = contexts[1]->output(output);
  if (!contexts[0]->RankKnown(first) || !contexts[1]->RankKnown(second)) return std::nullopt;
  const int rank = contexts[0]->Rank(first);
  if (rank != contexts[1]->Rank(second)) return std::nullopt;
  std::vector<SizePair> sizes(rank);
  for (int i = 0; i < rank; ++i) {
    sizes[i] = {contexts[0]->Value(contexts[0]->Dim(first, i)), contexts[1]->Value(contexts[1]->Dim(second, i))};
    if (sizes[i].first < 0 || sizes[i].second < 0) sizes[i] = SizePair();
  }
  return sizes;
}

SizePairs RowGraph::Numbers(const Node& node, int output) const {
  if (node.output_type(output) != tensorflow::DT_INT32 && node.output_type(output) != tensorflow::DT_INT64) {
    return std::nullopt;
  }
  const SizePairs shape = Shape(node, output);
  if (!shape.has_value()) return std::nullopt;
  int64_t count = 1;
  for (const SizePair& dim : *shape) {
    if (!dim.known() || dim.open() || dim.first > kMostNumbers) return std::nullopt;
    count *= dim.first;
    if (count > kMostNumbers) return std::nullopt;
  }
  std::vector<SizePair> numbers(count);
  for (int i = 0; i < 2; ++i) {
    tensorflow::EvaluateConstantTensorRunner runner;
    runner.op_registry = graph_->op_registry();
    runner.graph_def_version = graph_->versions().producer();
    runner.graph_runner = &runner_;
    const auto value = tensorflow::EvaluateConstantTensor(
        node, output, *shapes_[i], [](const Node&, int) { return std::optional<Tensor>(); }, runner);
    if (!value.ok() || !value->has_value() || (*value)->NumElements() != count) return std::nullopt;
    const Tensor& tensor = **value;
    for (int64_t k = 0; k < count; ++k) {
      const int64_t number =
          tensor.dtype() == tensorflow::DT_INT32 ? tensor.flat<int32_t>()(k) : tensor.flat<int64_t>()(k);
      (i == 0 ? numbers[k].first : numbers[k].second) = number;
    }
  }
  return numbers;
}

}  // namespace processor
