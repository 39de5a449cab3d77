// SPDX-License-Identifier: Apache-2.0
// The part of a graph between the inputs and outputs of a signature, with functions inlined, and its shapes for two
// numbers of rows. The proof of rows owns it.
#ifndef PROCESSOR_RUNTIME_ROWS_ROW_GRAPH_H_
#define PROCESSOR_RUNTIME_ROWS_ROW_GRAPH_H_

#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "src/base/signature.h"
#include "src/runtime/rows/row_rules.h"
#include "tensorflow/core/common_runtime/graph_runner.h"
#include "tensorflow/core/common_runtime/shape_refiner.h"
#include "tensorflow/core/framework/function.h"
#include "tensorflow/core/graph/graph.h"
#include "tensorflow/core/protobuf/meta_graph.pb.h"

namespace processor {

class RowGraph {
 public:
  /// Extracts the part of the graph that belongs to a signature.
  /// \return why that is impossible.
  static absl::Status Make(const tensorflow::MetaGraphDef& meta_graph, const Signature& signature,
                           std::unique_ptr<RowGraph>* graph);

  /// Infers the shapes of a node whose inputs have been visited. `open_sizes`: what sizes but that of rows are taken to
  /// be that the signature leaves open; 0: not known. \return whether the shapes are known as far as TensorFlow can
  /// tell.
  bool Visit(const tensorflow::Node& node);

  SizePairs Shape(const tensorflow::Node& node, int output) const;
  /// The values of a small integer tensor that depends on nothing but the number of rows.
  SizePairs Numbers(const tensorflow::Node& node, int output) const;
  /// Sets a shape that TensorFlow cannot infer.
  void SetShape(const tensorflow::Node& node, int output, const std::vector<SizePair>& shape);

  /// The nodes, each after its inputs; those of loops, and those that depend on them, are missing.
  const std::vector<const tensorflow::Node*>& order() const { return order_; }
  /// The number of the signature's input that a node stands for; -1 if it stands for none.
  int InputOf(const tensorflow::Node& node) const;
  /// The node whose first output is output `index` of the signature.
  const tensorflow::Node* OutputNode(int index) const;

 private:
  RowGraph() = default;
  absl::Status InlineCalls(const tensorflow::FunctionLibraryDefinition& functions);
  void Order();
  absl::Status SetInput(const tensorflow::Node& node, const TensorSpec& spec);

  const Signature* signature_ = nullptr;
  std::unique_ptr<tensorflow::FunctionLibraryDefinition> functions_;
  std::unique_ptr<tensorflow::Graph> graph_;
  std::vector<const tensorflow::Node*> order_;
  std::unique_ptr<tensorflow::ShapeRefiner> shapes_[2];
  mutable tensorflow::GraphRunner runner_{tensorflow::Env::Default()};
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_ROWS_ROW_GRAPH_H_
