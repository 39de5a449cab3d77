// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/version/saved_model.h"

#include <algorithm>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/base/log.h"
#include "src/runtime/version/increment.h"
#include "tensorflow/cc/saved_model/constants.h"
#include "tensorflow/cc/saved_model/loader_util.h"
#include "tensorflow/cc/saved_model/reader.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/graph/tensor_id.h"
#include "tensorflow/core/util/tensor_bundle/naming.h"

namespace processor {
namespace {

namespace fs = std::filesystem;

// The tag of the graph for serving; TensorFlow's header for it is not in the wheel.
constexpr char kServeTag[] = "serve";

using tensorflow::GraphDef;
using tensorflow::NodeDef;
using tensorflow::Tensor;

// Visits the nodes of the graph and of its functions.
void ForEachNode(const GraphDef& graph, const std::function<void(const NodeDef&)>& visit) {
  for (const NodeDef& node : graph.node()) visit(node);
  for (const auto& function : graph.library().function()) {
    for (const NodeDef& node : function.node_def()) visit(node);
  }
}

// Returns whether an op is one of DeepRec's EmbeddingVariable: their names all contain KvVar or KvResource.
bool IsEmbeddingVariableOp(const std::string& op) {
  return absl::StrContains(op, "KvVar") || absl::StrContains(op, "KvResource") || absl::StrContains(op, "EmbeddingVar");
}

Tensor StringScalar(const std::string& value) {
  Tensor tensor(tensorflow::DT_STRING, {});
  tensor.scalar<tensorflow::tstring>()() = value;
  return tensor;
}

// Ops that take a reference or a resource and only read through it, or pass it on.
bool OnlyReads(const std::string& op) {
  static const std::set<std::string>* const kReaders = new std::set<std::string>{
      "AccumulatorNumAccumulated",
      "BarrierIncompleteSize",
      "BarrierReadySize",
      "BoostedTreesGetEnsembleStates",
      "BoostedTreesPredict",
      "IsBoostedTreesEnsembleInitialized",
      "IsResourceHandleRefCounting",
      "IsVariableInitialized",
      "LookupTableExport",
      "LookupTableExportV2",
      "LookupTableFind",
      "LookupTableFindV2",
      "LookupTableSize",
      "LookupTableSizeV2",
      "QueueIsClosed",
      "QueueIsClosedV2",
      "QueueSize",
      "QueueSizeV2",
      "ReadVariableOp",
      "RecEmbeddingGroup",
      "RecPinView",
      "RefEnter",
      "RefExit",
      "RefIdentity",
      "RefMerge",
      "RefNextIteration",
      "RefSelect",
      "RefSwitch",
      "ResourceAccumulatorNumAccumulated",
      "ResourceGather",
      "ResourceGatherNd",
      "VarIsInitializedOp",
      "VariableShape",
      "_ReadVariablesOp",
  };
  return kReaders->count(op) > 0;
}

// Ops on objects that end with the step.
bool IsOfStep(const std::string& op) {
  return absl::StartsWith(op, "TensorArray") || absl::StartsWith(op, "StackPush") || absl::StartsWith(op, "StackPop") ||
         absl::StartsWith(op, "StackClose");
}

// Ops that keep tensors under a name, without a handle that would show it.
bool Keeps(const std::string& op) {
  static const std::set<std::string>* const kKeepers = new std::set<std::string>{
      "Batch",           "BatchFunction",   "MapClear",        "MapStage",          "MapUnstage",
      "MapUnstageNoKey", "OrderedMapClear", "OrderedMapStage", "OrderedMapUnstage", "OrderedMapUnstageNoKey",
      "Stage",           "StageClear",      "Unbatch",         "UnbatchGrad",       "Unstage"};
  return kKeepers->count(op) > 0;
}

// Returns whether an op may change state that outlives a step, or keep a tensor after it: by its definition, it takes a
// variable, table or queue and is not known to leave it unchanged.
bool IsWriter(const std::string& op) {
  if (Keeps(op)) return true;
  const tensorflow::OpDef* op_def = nullptr;
  if (!tensorflow::OpRegistry::Global()->LookUpOpDef(op, &op_def).ok()) return false;  // a function: its body counts
  const auto& inputs = op_def->input_arg();
  const bool has_access = std::any_of(inputs.begin(), inputs.end(), [](const tensorflow::OpDef::ArgDef& input) {
    return input.is_ref() || input.type() == tensorflow::DT_RESOURCE;
  });
  return has_access && !OnlyReads(op) && !IsOfStep(op);
}

bool HasVariables(const GraphDef& graph) {
  bool found = false;
  ForEachNode(graph, [&](const NodeDef& node) {
    found = found || node.op() == "VarHandleOp" || node.op() == "VariableV2" || node.op() == "Variable";
  });
  return found;
}

absl::Status CheckFile(const fs::path& path, std::string_view what) {
  std::error_code error;
  if (fs::exists(path, error)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat(what, " '", path.string(), "': missing"));
}

}  // namespace

absl::Status ReadSavedModel(const std::string& dir, tensorflow::MetaGraphDef* meta_graph) {
  std::error_code error;
  if (dir.empty()) return absl::InvalidArgumentError("savedmodel_dir: empty, expected the folder of a SavedModel");
  if (!fs::is_directory(dir, error)) {
    return absl::NotFoundError(absl::StrCat("savedmodel_dir '", dir, "': no such folder"));
  }
  // TensorFlow also takes .pbtxt and, for large graphs, .cpb.
  bool found = false;
  for (const char* name : {"saved_model.pb", "saved_model.pbtxt", "saved_model.cpb"}) {
    found = found || fs::exists(fs::path(dir) / name, error);
  }
  if (!found) {
    return absl::NotFoundError(absl::StrCat("savedmodel_dir '", dir, "': holds no saved_model.pb"));
  }
  const absl::Status status = tensorflow::ReadMetaGraphDefFromSavedModel(dir, {kServeTag}, meta_graph);
  if (!status.ok()) return absl::Status(status.code(), absl::StrCat("savedmodel_dir '", dir, "': ", status.message()));
  return absl::OkStatus();
}

absl::Status CheckOps(const GraphDef& graph) {
  std::set<std::string> functions, embedding_ops, unknown_ops;
  for (const auto& function : graph.library().function()) functions.insert(function.signature().name());
  ForEachNode(graph, [&](const NodeDef& node) {
    const tensorflow::OpDef* op_def = nullptr;
    if (functions.count(node.op()) > 0) return;
    if (tensorflow::OpRegistry::Global()->LookUpOpDef(node.op(), &op_def).ok()) return;
    (IsEmbeddingVariableOp(node.op()) ? embedding_ops : unknown_ops).insert(node.op());
  });
  if (!embedding_ops.empty()) {
    return absl::UnimplementedError(
        absl::StrCat("graph: EmbeddingVariable ops found (", absl::StrJoin(embedding_ops, ", "),
                     "), expected TensorFlow's own; run `graph-tools cut` to turn them into native look-ups"));
  }
  if (!unknown_ops.empty()) {
    return absl::UnimplementedError(
        absl::StrCat("graph: custom ops found (", absl::StrJoin(unknown_ops, ", "),
                     "), expected TensorFlow's own; run `graph-tools cut` if they belong to "
                     "a sparse training framework"));
  }
  return absl::OkStatus();
}

void ShareTables(GraphDef* graph) {
  static const std::set<std::string>* const kTables = new std::set<std::string>{"HashTable",
                                                                                "HashTableV2",
                                                                                "MutableHashTable",
                                                                                "MutableHashTableV2",
                                                                                "MutableDenseHashTable",
                                                                                "MutableDenseHashTableV2",
                                                                                "MutableHashTableOfTensors",
                                                                                "MutableHashTableOfTensorsV2"};
  const auto share = [](const std::string& prefix, NodeDef* node) {
    if (kTables->count(node->op()) == 0) return;
    const auto sharing = node->attr().find("use_node_name_sharing");
    if (sharing != node->attr().end() && sharing->second.b()) return;
    auto& name = (*node->mutable_attr())["shared_name"];
    if (name.s().empty()) name.set_s(absl::StrCat(prefix, node->name()));
  };
  for (NodeDef& node : *graph->mutable_node()) share("", &node);
  for (auto& function : *graph->mutable_library()->mutable_function()) {
    for (NodeDef& node : *function.mutable_node_def()) share(function.signature().name() + "/", &node);
  }
}

absl::Status FindView(const GraphDef& graph, std::string* view, std::string* model) {
  int views = 0;
  ForEachNode(graph, [&](const NodeDef& node) { views += node.op() == "RecPinView"; });
  if (views == 0) return absl::OkStatus();
  std::map<std::string_view, const NodeDef*> nodes;
  for (const NodeDef& node : graph.node()) nodes[node.name()] = &node;
  for (const NodeDef& node : graph.node()) {
    if (node.op() != "RecPinView" || views > 1 || node.input_size() == 0) continue;
    const auto live = nodes.find(node.input(0));
    if (live == nodes.end() || live->second->op() != "RecLiveModel") continue;
    const auto name = live->second->attr().find("shared_name");
    *view = absl::StrCat(node.name(), ":0");
    *model = name == live->second->attr().end() || name->second.s().empty() ? live->second->name() : name->second.s();
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(
      "graph: ", views, " nodes RecPinView, expected one, outside of functions, that takes a RecLiveModel"));
}

void TakeInputDtypesOfGraph(tensorflow::MetaGraphDef* meta_graph) {
  std::map<std::string_view, const NodeDef*> nodes;
  for (const NodeDef& node : meta_graph->graph_def().node()) nodes[node.name()] = &node;
  for (auto& [name, signature] : *meta_graph->mutable_signature_def()) {
    for (auto& [alias, info] : *signature.mutable_inputs()) {
      const tensorflow::TensorId tensor = tensorflow::ParseTensorName(info.name());
      const auto node = nodes.find(tensor.node());
      const tensorflow::OpDef* op_def = nullptr;
      if (node == nodes.end() || tensor.index() < 0) continue;
      if (!tensorflow::OpRegistry::Global()->LookUpOpDef(node->second->op(), &op_def).ok()) continue;
      NodeDef whole = *node->second;  // exporters omit attributes that have their default
      tensorflow::AddDefaultsToNodeDef(*op_def, &whole);
      tensorflow::DataType dtype = tensorflow::DT_INVALID;
      if (!tensorflow::OutputTypeForNode(whole, *op_def, tensor.index(), &dtype).ok()) continue;
      dtype = tensorflow::BaseType(dtype);
      if (dtype == info.dtype()) continue;
      Log(Severity::kWarning,
          absl::StrCat("signature '", name, "': input '", alias, "' has ", tensorflow::DataType_Name(info.dtype()),
                       ", expected ", tensorflow::DataType_Name(dtype), " as in the graph, which is taken"));
      info.set_dtype(dtype);
    }
  }
}

bool WritesState(const tensorflow::MetaGraphDef& meta_graph) {
  const GraphDef& graph = meta_graph.graph_def();
  std::map<std::string, const NodeDef*> nodes;
  for (const NodeDef& node : graph.node()) nodes[node.name()] = &node;
  std::map<std::string, const tensorflow::FunctionDef*> functions;
  for (const auto& function : graph.library().function()) functions[function.signature().name()] = &function;

  // Only nodes that requests run count: every TF 2 model has functions that assign restored values.
  std::set<std::string> seen;
  struct Pending {
    const NodeDef* node;
    bool in_body;  // in a function: all its nodes count, and its names refer to other nodes than the graph's
  };
  std::vector<Pending> pending;
  const auto call = [&](const std::string& name) {
    const auto function = functions.find(name);
    if (function == functions.end() || !seen.insert("f:" + name).second) return;
    for (const NodeDef& node : function->second->node_def()) pending.push_back({&node, true});
  };
  const auto visit = [&](std::string name) {
    if (!name.empty() && name[0] == '^') name.erase(0, 1);
    name = name.substr(0, name.find(':'));
    const auto node = nodes.find(name);
    if (node != nodes.end() && seen.insert("n:" + name).second) pending.push_back({node->second, false});
  };
  for (const auto& [key, signature] : meta_graph.signature_def()) {
    if (absl::StartsWith(key, "__saved_model_")) continue;
    for (const auto& [alias, info] : signature.outputs()) visit(info.name());
  }
  while (!pending.empty()) {
    const NodeDef& node = *pending.back().node;
    const bool in_body = pending.back().in_body;
    pending.pop_back();
    if (IsWriter(node.op())) return true;
    call(node.op());
    for (const auto& [key, attr] : node.attr()) {
      if (attr.has_func()) call(attr.func().name());
      for (const auto& func : attr.list().func()) call(func.name());
    }
    if (in_body) continue;
    for (const std::string& input : node.input()) visit(input);
  }
  return false;
}

absl::Status RestoreVariables(const std::string& dir, const std::string& checkpoint_prefix,
                              const std::string& increment, const tensorflow::MetaGraphDef& meta_graph,
                              const tensorflow::thread::ThreadPoolOptions& threads, tensorflow::Session* session) {
  // Feeds the names of asset files to the graph.
  std::vector<tensorflow::AssetFileDef> assets;
  if (absl::Status s = tensorflow::internal::GetAssetFileDefs(meta_graph, &assets); !s.ok()) return s;
  std::vector<std::pair<std::string, Tensor>> asset_feeds;
  for (const tensorflow::AssetFileDef& asset : assets) {
    const fs::path path = fs::path(dir) / tensorflow::kSavedModelAssetsDirectory / asset.filename();
    if (absl::Status s = CheckFile(path, "asset"); !s.ok()) return s;
    asset_feeds.emplace_back(asset.tensor_info().name(), StringScalar(path.string()));
  }
  const auto run = [&](std::vector<std::pair<std::string, Tensor>> feeds, const std::string& op) {
    tensorflow::RunMetadata metadata;
    return session->Run(tensorflow::RunOptions(), feeds, {}, {op}, nullptr, &metadata, threads);
  };

  std::string prefix = checkpoint_prefix;
  if (prefix.empty()) {
    const fs::path variables = fs::path(dir) / tensorflow::kSavedModelVariablesDirectory;
    prefix = (variables / tensorflow::kSavedModelVariablesFilename).string();
    std::error_code error;
    // A model without variables has no such folder, and nothing to restore.
    if (!fs::exists(tensorflow::MetaFilename(prefix), error)) {
      if (fs::exists(variables, error) && !fs::is_empty(variables, error)) {
        return CheckFile(tensorflow::MetaFilename(prefix), "variables");
      }
      // Its absence is a fault if there are variables to restore.
      if (!meta_graph.saver_def().restore_op_name().empty() && HasVariables(meta_graph.graph_def())) {
        return CheckFile(tensorflow::MetaFilename(prefix), "variables");
      }
      prefix.clear();
    }
  }
  const tensorflow::SaverDef& saver = meta_graph.saver_def();
  if (!prefix.empty() && !saver.restore_op_name().empty()) {
    auto feeds = asset_feeds;
    feeds.emplace_back(saver.filename_tensor_name(), StringScalar(prefix));
    if (!increment.empty()) {
      if (absl::Status s = AddIncrement(meta_graph.graph_def(), prefix, increment, &feeds); !s.ok()) return s;
    }
    if (absl::Status s = run(feeds, saver.restore_op_name()); !s.ok()) {
      return absl::Status(s.code(), absl::StrCat("variables '", prefix, "': ", s.message()));
    }
  }
  std::string init_op;
  if (absl::Status s = tensorflow::internal::GetInitOp(dir, meta_graph, &init_op); !s.ok()) return s;
  if (!init_op.empty()) {
    if (absl::Status s = run(asset_feeds, init_op); !s.ok()) {
      return absl::Status(s.code(), absl::StrCat("initializer '", init_op, "': ", s.message()));
    }
  }
  return absl::OkStatus();
}

}  // namespace processor
