// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/rows/row_proof.h"

#include <map>
#include <memory>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "src/runtime/rows/open_shapes.h"
#include "src/runtime/rows/row_graph.h"
#include "src/runtime/rows/row_rules.h"
#include "tensorflow/core/framework/node_def_util.h"

namespace processor {
namespace {

using tensorflow::Edge;
using tensorflow::Node;
using Kind = RowValue::Kind;

constexpr char kNoRule[] = "is not known to act on each row alone";

/// How a tensor depends on rows, and the node that is the reason.
struct NodeRows {
  RowValue value;
  const Node* node = nullptr;
};

class RowWalk {
 public:
  RowWalk(RowGraph& graph, const Signature& signature) : graph_(graph), signature_(signature) {
    for (const Node* node : graph_.order()) Visit(*node);
  }

  RowProof Proof(int output) const {
    const Node* const node = graph_.OutputNode(output);
    if (node == nullptr) return {RowProof::Finding::kUnproved, "comes out of a loop"};
    const NodeRows& found = found_.at(node);
    const SizePairs shape = graph_.Shape(*node, 0);
    switch (found.value.kind) {
      case Kind::kFree:
        return Dependent("has no rows: it is the same for all requests");
      case Kind::kSizes:
        return Dependent("depends on the number of rows alone");
      case Kind::kMixed:
        return Dependent(Reason(found));
      case Kind::kUnknown:
        return {RowProof::Finding::kUnproved, Reason(found)};
      case Kind::kRows:
        break;
    }
    if (found.value.axis != 0) return Dependent(absl::StrCat("has rows in dimension ", found.value.axis));
    if (shape.has_value() && (*shape)[0].known() && !((*shape)[0] == rows_)) {
      return Dependent("has several places for each row");
    }
    return {RowProof::Finding::kIndependent, ""};
  }

 private:
  static RowProof Dependent(std::string reason) { return {RowProof::Finding::kDependent, std::move(reason)}; }

  static std::string Reason(const NodeRows& found) {
    if (found.node == nullptr) return found.value.why;
    return absl::StrCat("'", found.node->name(), "' (", found.node->type_string(), ") ", found.value.why);
  }

  void Visit(const Node& node) {
    const bool shaped = graph_.Visit(node);
    NodeRows found{OfNode(node, shaped), &node};
    if (found.value.kind == Kind::kUnknown || found.value.kind == Kind::kMixed) {
      // The reason is the node that produced the input, not the one that consumes it.
      for (const Edge* edge : node.in_edges()) {
        if (edge->IsControlEdge()) continue;
        const NodeRows& input = found_.at(edge->src());
        if (input.value.kind == found.value.kind && input.value.why == found.value.why) found.node = input.node;
      }
    }
    if (found.value.kind == Kind::kRows) SetOpenShapes(node, &graph_);
    found_[&node] = found;
  }

  RowValue OfInput(int number, const Node& node) {
    const tensorflow::PartialTensorShape& shape = signature_.inputs()[number].shape;
    if (shape.unknown_rank()) return RowValue::Rows(0);
    if (shape.dims() == 0) return RowValue::Mixed("is a scalar: it has no rows");
    if (shape.dim_size(0) >= 0) return RowValue::Mixed("has a fixed number of rows");
    rows_ = (*graph_.Shape(node, 0))[0];
    return RowValue::Rows(0);
  }

  RowValue OfNode(const Node& node, bool shaped) {
    const int input = graph_.InputOf(node);
    if (input >= 0) return OfInput(input, node);
    RowNode n{node, {}, {}, {}, {}};
    n.inputs.resize(node.num_inputs());
    n.shapes.resize(node.num_inputs());
    std::vector<const Edge*> edges(node.num_inputs());
    bool all_free = true, has_rows = false;
    const RowValue* unknown = nullptr;
    const bool of_shapes = IsOfShapes(node);
    for (const Edge* edge : node.in_edges()) {
      if (edge->IsControlEdge()) continue;
      const int at = edge->dst_input();
      edges[at] = edge;
      const NodeRows& found = found_.at(edge->src());
      n.inputs[at] = PortOf(found.value, *edge->src(), edge->src_output());
      n.shapes[at] = graph_.Shape(*edge->src(), edge->src_output());
      all_free = all_free && n.IsFree(at);
      has_rows = has_rows || n.IsRows(at);
      if (n.inputs[at].kind == Kind::kMixed && !of_shapes) return n.inputs[at];
      if (n.inputs[at].kind == Kind::kUnknown) unknown = &n.inputs[at];
    }
    if (all_free) return RowValue::Free();
    n.numbers = [&](int at) -> SizePairs {
      if (at >= n.size() || (!n.IsFree(at) && !n.IsSizes(at))) return std::nullopt;
      return graph_.Numbers(*edges[at]->src(), edges[at]->src_output());
    };
    if (of_shapes) return OfShapes(n);
    if (unknown != nullptr) return *unknown;
    if (!shaped) return RowValue::Unknown("has a shape that cannot be inferred");
    n.shape = graph_.Shape(node, 0);
    if (!has_rows) return OfSizes(n);
    const RowRule rule = FindRowRule(node.type_string());
    return rule == nullptr ? RowValue::Unknown(kNoRule) : rule(n);
  }

  // All outputs of a node depend on rows alike, except for these ops.
  static RowValue PortOf(const RowValue& value, const Node& node, int port) {
    const bool first_only = absl::StartsWith(node.type_string(), "FusedBatchNorm");
    if (value.kind != Kind::kRows || port == 0 || !first_only) return value;
    return RowValue::Unknown(kNoRule);
  }

  static bool IsOfShapes(const Node& node) {
    const std::string& op = node.type_string();
    return op == "Shape" || op == "ShapeN" || op == "Size" || op == "Rank";
  }

  RowValue OfShapes(const RowNode& n) {
    bool open = false;
    for (int i = 0; i < n.size(); ++i) {
      if (!n.shapes[i].has_value()) return RowValue::Unknown("takes the shape of a tensor of a rank that is not known");
      if (n.node.type_string() == "Rank") continue;
      for (const SizePair& size : *n.shapes[i]) {
        if (!size.known()) return RowValue::Unknown("takes a size that may depend on all rows");
        open = open || size.open();
      }
    }
    return open ? RowValue{Kind::kSizes} : RowValue::Free();
  }

  // Handles an op whose inputs depend only on the number of rows.
  RowValue OfSizes(const RowNode& n) {
    if (n.node.op_def().is_stateful()) return RowValue::Unknown(kNoRule);
    if (const RowRule rule = FindFillRule(n.node.type_string()); rule != nullptr) {
      const RowValue filled = rule(n);
      if (filled.kind == Kind::kRows) return filled;
    }
    if (n.node.num_outputs() != 1) return RowValue{Kind::kSizes};
    const SizePairs numbers = graph_.Numbers(n.node, 0);
    if (!numbers.has_value()) return RowValue{Kind::kSizes};
    for (const SizePair& number : *numbers) {
      if (number.open()) return RowValue{Kind::kSizes};
    }
    return RowValue::Free();
  }

  RowGraph& graph_;
  const Signature& signature_;
  SizePair rows_;
  std::map<const Node*, NodeRows> found_;
};

}  // namespace

std::vector<RowProof> ProveRows(const tensorflow::MetaGraphDef& meta_graph, const Signature& signature) {
  std::vector<RowProof> proofs(signature.outputs().size());
  std::unique_ptr<RowGraph> graph;
  if (absl::Status s = RowGraph::Make(meta_graph, signature, &graph); !s.ok()) {
    for (RowProof& proof : proofs) proof.reason = absl::StrCat("the graph cannot be followed: ", s.message());
    return proofs;
  }
  const RowWalk walk(*graph, signature);
  for (size_t i = 0; i < proofs.size(); ++i) {
    proofs[i] = walk.Proof(static_cast<int>(i));
    if (!proofs[i].reason.empty()) {
      proofs[i].reason = absl::StrCat("output '", signature.outputs()[i].alias, "': ", proofs[i].reason);
    }
  }
  return proofs;
}

}  // namespace processor
