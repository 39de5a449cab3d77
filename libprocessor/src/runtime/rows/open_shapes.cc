// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/rows/open_shapes.h"

#include <string>
#include <vector>

#include "src/kernels/tower_plan.h"
#include "tensorflow/core/framework/node_def_util.h"

namespace processor {
namespace {

using tensorflow::Node;

std::vector<SizePairs> InputShapes(const Node& node, const RowGraph& graph) {
  std::vector<SizePairs> shapes(node.num_inputs());
  for (const tensorflow::Edge* edge : node.in_edges()) {
    if (!edge->IsControlEdge()) shapes[edge->dst_input()] = graph.Shape(*edge->src(), edge->src_output());
  }
  return shapes;
}

// Returns the elements per row of a tower's output; -1 if that is not known.
class TowerWidths {
 public:
  TowerWidths(const TowerPlan& plan, const std::vector<SizePairs>& shapes, int num_inputs)
      : shapes_(shapes), num_inputs_(num_inputs) {
    for (const TowerLayer& layer : plan.layers) layers_.push_back(OfLayer(layer));
  }

  int64_t Of(const TowerValue& value) const {
    if (value.is_layer) return layers_[value.number];
    const SizePairs& shape = shapes_[value.number];
    return shape.has_value() && !shape->empty() && !shape->back().open() ? shape->back().first : -1;
  }

 private:
  int64_t OfLayer(const TowerLayer& layer) const {
    if (layer.kind == LayerKind::kDense) {
      const SizePairs& weight = shapes_[num_inputs_ + layer.weights[0]];
      return weight.has_value() && weight->size() == 2 ? (*weight)[layer.transposed ? 0 : 1].first : -1;
    }
    if (layer.kind == LayerKind::kMix) return Of(layer.inputs[1]);
    if (layer.kind != LayerKind::kConcat) return Of(layer.inputs[0]);
    int64_t sum = 0;
    for (const TowerValue& input : layer.inputs) {
      const int64_t width = Of(input);
      if (width < 0) return -1;
      sum += width;
    }
    return sum;
  }

  const std::vector<SizePairs>& shapes_;
  const int num_inputs_;
  std::vector<int64_t> layers_;
};

void SetTowerShapes(const Node& node, RowGraph* graph) {
  int num_inputs = 0, num_weights = 0;
  std::string text;
  TowerPlan plan;
  if (!tensorflow::GetNodeAttr(node.attrs(), "num_inputs", &num_inputs).ok() ||
      !tensorflow::GetNodeAttr(node.attrs(), "num_weights", &num_weights).ok() ||
      !tensorflow::GetNodeAttr(node.attrs(), "plan", &text).ok() ||
      !ParseTowerPlan(text, num_inputs, num_weights, node.num_outputs(), &plan).ok()) {
    return;
  }
  const std::vector<SizePairs> shapes = InputShapes(node, *graph);
  const TowerWidths widths(plan, shapes, num_inputs);
  // The leading dimensions are those of the input with the most dimensions, among the inputs with all rows.
  SizePairs leading;
  for (int i = 0; i < num_inputs; ++i) {
    if (!shapes[i].has_value() || shapes[i]->empty()) return;
    if (shapes[i]->front().open() && (!leading.has_value() || leading->size() < shapes[i]->size())) leading = shapes[i];
  }
  if (!leading.has_value()) return;
  for (int i = 0; i < node.num_outputs(); ++i) {
    std::vector<SizePair> shape = *leading;
    const int64_t width = widths.Of(plan.outputs[i]);
    shape.back() = {width, width};
    graph->SetShape(node, i, shape);
  }
}

}  // namespace

void SetOpenShapes(const Node& node, RowGraph* graph) {
  const std::string& op = node.type_string();
  if (op == "RecDenseTower") return SetTowerShapes(node, graph);
  const std::vector<SizePairs> shapes = InputShapes(node, *graph);
  if (op == "LookupTableFind" || op == "LookupTableFindV2") {
    // A value for each key, with the shape of the default.
    if (!shapes[1].has_value() || !shapes[2].has_value()) return;
    std::vector<SizePair> shape = *shapes[1];
    shape.insert(shape.end(), shapes[2]->begin(), shapes[2]->end());
    graph->SetShape(node, 0, shape);
  }
  if (op != "RecCollapseRows") return;
  for (int i = 0; i < node.num_outputs(); ++i) {
    if (shapes[i].has_value()) graph->SetShape(node, i, *shapes[i]);
  }
}

}  // namespace processor
