// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/version/saved_model.h"

#include <gtest/gtest.h>

#include <string>

#include "tensorflow/core/framework/function.pb.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/node_def.pb.h"

namespace processor {
namespace {

tensorflow::NodeDef& AddNode(tensorflow::GraphDef* graph, const char* name, const std::string& op) {
  tensorflow::NodeDef& node = *graph->add_node();
  node.set_name(name);
  node.set_op(op);
  return node;
}

// A model whose only output is that of node "y".
tensorflow::MetaGraphDef MakeMetaGraph() {
  tensorflow::MetaGraphDef meta_graph;
  (*(*meta_graph.mutable_signature_def())["serving_default"].mutable_outputs())["y"].set_name("y:0");
  return meta_graph;
}

bool WritesWith(const std::string& op) {
  tensorflow::MetaGraphDef meta_graph = MakeMetaGraph();
  AddNode(meta_graph.mutable_graph_def(), "x", op);
  AddNode(meta_graph.mutable_graph_def(), "y", "Identity").add_input("x");
  return WritesState(meta_graph);
}

TEST(WritesState, OpsThatChangeTheirResourceDo) {
  for (const char* op : {"Assign",
                         "AssignAdd",
                         "AssignVariableOp",
                         "AssignAddVariableOp",
                         "CountUpTo",
                         "ResourceCountUpTo",
                         "ScatterAdd",
                         "ScatterNdUpdate",
                         "ScatterNdAdd",
                         "StridedSliceAssign",
                         "ResourceScatterNdUpdate",
                         "ResourceScatterUpdate",
                         "ApplyAdam",
                         "SparseApplyFtrl",
                         "ResourceApplyAdam",
                         "ResourceStridedSliceAssign",
                         "StatefulUniform",
                         "RngReadAndSkip",
                         "LookupTableInsertV2",
                         "LookupTableRemoveV2",
                         "LookupTableImport",
                         "InitializeTableV2",
                         "QueueEnqueue",
                         "QueueDequeueV2",
                         "BarrierInsertMany",
                         "IteratorGetNext",
                         "DestroyResourceOp",
                         "Stage",
                         "OrderedMapStage",
                         "Batch",
                         "BatchFunction"}) {
    EXPECT_TRUE(WritesWith(op)) << op;
  }
}

TEST(WritesState, OpsThatOnlyReadDoNot) {
  for (const char* op : {"ReadVariableOp",
                         "ResourceGather",
                         "ResourceGatherNd",
                         "VariableShape",
                         "VarIsInitializedOp",
                         "LookupTableFindV2",
                         "LookupTableFind",
                         "LookupTableSizeV2",
                         "RefIdentity",
                         "RefSwitch",
                         "RefMerge",
                         "IsVariableInitialized",
                         "TensorArrayWriteV3",
                         "TensorArrayReadV3",
                         "StackPushV2",
                         "StackPopV2",
                         "MatMul",
                         "BatchMatMulV2",
                         "RandomUniform",
                         "VariableV2",
                         "VarHandleOp"}) {
    EXPECT_FALSE(WritesWith(op)) << op;
  }
}

TEST(WritesState, ConsidersOnlyNodesThatRequestsRun) {
  tensorflow::MetaGraphDef meta_graph = MakeMetaGraph();
  AddNode(meta_graph.mutable_graph_def(), "x", "CountUpTo");
  AddNode(meta_graph.mutable_graph_def(), "y", "NoOp");
  EXPECT_FALSE(WritesState(meta_graph)) << "nothing leads to x";
  meta_graph.mutable_graph_def()->mutable_node(1)->add_input("^x");
  EXPECT_TRUE(WritesState(meta_graph)) << "a control dependency does";
}

TEST(WritesState, ConsidersFunctionBodies) {
  tensorflow::MetaGraphDef meta_graph = MakeMetaGraph();
  tensorflow::FunctionDef& function = *meta_graph.mutable_graph_def()->mutable_library()->add_function();
  function.mutable_signature()->set_name("body");
  function.add_node_def()->set_op("ReadVariableOp");
  tensorflow::NodeDef& y = AddNode(meta_graph.mutable_graph_def(), "y", "StatefulPartitionedCall");
  (*y.mutable_attr())["f"].mutable_func()->set_name("body");
  EXPECT_FALSE(WritesState(meta_graph));
  function.add_node_def()->set_op("ResourceCountUpTo");
  EXPECT_TRUE(WritesState(meta_graph));
}

TEST(WritesState, DoesNotConfuseFunctionNodesWithGraphNodes) {
  // As exporters write it: what initializes tables hangs on a node NoOp, and so do outputs of functions on theirs.
  tensorflow::MetaGraphDef meta_graph = MakeMetaGraph();
  AddNode(meta_graph.mutable_graph_def(), "table", "InitializeTableV2");
  AddNode(meta_graph.mutable_graph_def(), "NoOp", "NoOp").add_input("^table");
  tensorflow::FunctionDef& function = *meta_graph.mutable_graph_def()->mutable_library()->add_function();
  function.mutable_signature()->set_name("body");
  tensorflow::NodeDef& output = *function.add_node_def();
  output.set_op("Identity");
  output.add_input("^NoOp");
  tensorflow::NodeDef& y = AddNode(meta_graph.mutable_graph_def(), "y", "StatefulPartitionedCall");
  (*y.mutable_attr())["f"].mutable_func()->set_name("body");
  EXPECT_FALSE(WritesState(meta_graph));
}

}  // namespace
}  // namespace processor
