// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/version/early_lookups.h"

#include <algorithm>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/kernels/embedding_plan.h"
#include "src/kernels/embedding_table_resource.h"
#include "src/runtime/rows/row_graph.h"
#include "tensorflow/core/framework/node_def_util.h"

namespace processor {
namespace {

using tensorflow::Edge;
using tensorflow::GetNodeAttr;
using tensorflow::Node;

// Keys are made and looked up in portions, so that their memory stays in the cache of a core.
constexpr size_t kPortion = 4096;

// What keys are made in, which later requests use again.
struct Scratch {
  int64_t numbers[kPortion];
  uint8_t none[kPortion];
  uint32_t rows[kPortion];
  tensorflow::tstring strings[kPortion];
};

const Edge* InputEdge(const Node& node, int input) {
  const Edge* edge = nullptr;
  return node.input_edge(input, &edge).ok() ? edge : nullptr;
}

// Whether output 0 of a node has the elements of its input 0, in their order.
bool KeepsElements(const Node& node) {
  static const auto* const ops = new std::set<std::string>{
      "Identity", "Reshape", "ExpandDims", "Squeeze", "Snapshot", "StopGradient", "PreventGradient", "EnsureShape"};
  if (ops->count(node.type_string()) > 0) return true;
  tensorflow::DataType from = tensorflow::DT_INVALID, to = tensorflow::DT_INVALID;
  return node.type_string() == "Cast" && GetNodeAttr(node.attrs(), "SrcT", &from).ok() &&
         GetNodeAttr(node.attrs(), "DstT", &to).ok() && from == tensorflow::DT_INT32 && to == tensorflow::DT_INT64;
}

}  // namespace

// Searches the graph of one signature.
class EarlyLookups::Search {
 public:
  Search(EarlyLookups* found, const RowGraph& graph, const Signature& signature, tensorflow::ResourceMgr* resources,
         const EpochView* view)
      : found_(*found), graph_(graph), signature_(signature), resources_(*resources), view_(view) {}

  std::vector<Lookup> Run() {
    for (const Node* node : graph_.order()) {
      if (node->type_string() == "RecEmbeddingGroup") AddGroup(*node);
    }
    return std::move(lookups_);
  }

 private:
  void AddGroup(const Node& node) {
    std::string text;
    std::vector<tensorflow::DataType> types;
    int tables = 0, outputs = 0;
    EmbeddingPlan plan;
    if (!GetNodeAttr(node.attrs(), "plan", &text).ok() || !GetNodeAttr(node.attrs(), "Tfeatures", &types).ok() ||
        !GetNodeAttr(node.attrs(), "num_tables", &tables).ok() ||
        !GetNodeAttr(node.attrs(), "num_outputs", &outputs).ok() ||
        !ParseEmbeddingPlan(text, static_cast<int>(types.size()), tables, outputs, &plan).ok()) {
      return;
    }
    std::set<std::pair<int, int>> seen;
    for (const PlanColumn& column : plan.columns) {
      if (column.kind != ColumnKind::kLookup || !seen.emplace(column.key, column.table).second) continue;
      const PlanKey& key = plan.keys[column.key];
      const int input = InputOf(InputEdge(node, key.feature));
      if (input < 0) continue;
      AddLookup(key, input, InputEdge(node, static_cast<int>(types.size()) + column.table));
    }
  }

  // Returns the input of the signature whose elements an edge has, or -1.
  int InputOf(const Edge* edge) const {
    while (edge != nullptr) {
      const int input = graph_.InputOf(*edge->src());
      if (input >= 0) return input;
      // It passes on all rows of its inputs, or one of rows that are equal.
      const bool collapses = edge->src()->type_string() == "RecCollapseRows";
      if (!collapses && (edge->src_output() != 0 || !KeepsElements(*edge->src()))) return -1;
      edge = InputEdge(*edge->src(), edge->src_output());
    }
    return -1;
  }

  void AddLookup(const PlanKey& key, int input, const Edge* table_edge) {
    while (table_edge != nullptr && table_edge->src()->type_string() == "Identity") {
      table_edge = InputEdge(*table_edge->src(), 0);
    }
    if (table_edge == nullptr || table_edge->src()->type_string() != "RecEmbeddingTable") return;
    Lookup lookup;
    lookup.input = input;
    lookup.dtype = signature_.inputs()[input].dtype;
    lookup.table = FindTable(*table_edge->src(), &lookup.live);
    if (lookup.table == nullptr || lookup.table->tiered() == nullptr) return;
    if (!KeySteps::Make(key, lookup.dtype, &lookup.steps).ok()) return;
    if (lookup.steps.gives_strings() != (lookup.table->index_kind() == IndexKind::kString)) return;
    lookups_.push_back(std::move(lookup));
  }

  const EmbeddingTable* FindTable(const Node& node, int* live) {
    std::string container, name;
    if (!GetNodeAttr(node.attrs(), "container", &container).ok()) container.clear();
    if (!GetNodeAttr(node.attrs(), "shared_name", &name).ok() || name.empty()) name = node.name();
    if (container.empty()) container = resources_.default_container();
    EmbeddingTableResource* found = nullptr;
    if (!resources_.Lookup(container, name, &found).ok()) return nullptr;
    const tensorflow::core::RefCountPtr<EmbeddingTableResource> owned(found);
    found_.tables_->push_back(owned->shared_table());
    *live = -1;
    if (view_ != nullptr) {
      const auto number = view_->parts().tables.find(absl::StrCat(container, "/", name));
      if (number != view_->parts().tables.end()) *live = number->second;
    }
    return owned->shared_table().get();
  }

  EarlyLookups& found_;
  const RowGraph& graph_;
  const Signature& signature_;
  tensorflow::ResourceMgr& resources_;
  const EpochView* const view_;
  std::vector<Lookup> lookups_;
};

std::unique_ptr<const EarlyLookups> EarlyLookups::Find(const tensorflow::MetaGraphDef& meta_graph,
                                                       const SignatureSet& signatures,
                                                       tensorflow::ResourceMgr* resources, const EpochView* view) {
  std::unique_ptr<EarlyLookups> found(new EarlyLookups);
  found->signatures_ = &signatures;
  bool any = false;
  for (const auto& signature : signatures.all()) {
    std::vector<Lookup>& lookups = found->lookups_.emplace_back();
    std::unique_ptr<RowGraph> graph;
    if (!RowGraph::Make(meta_graph, *signature, &graph).ok()) continue;
    lookups = Search(found.get(), *graph, *signature, resources, view).Run();
    any = any || !lookups.empty();
  }
  return any ? std::move(found) : nullptr;
}

std::shared_ptr<EarlyRows> EarlyLookups::RowsOf(const DecodedRequest& request, const EpochView* view) const {
  std::shared_ptr<EarlyRows> rows;
  const auto want = [&](const DecodedRequest& part) {
    // What an output needs that the request does not want is not read.
    if (part.fetches.size() != part.signature->outputs().size()) return;
    for (const Lookup& lookup : lookups_[signatures_->IndexOf(part.signature)]) {
      const tensorflow::Tensor& feed = part.feeds[lookup.input];
      if (feed.dtype() != lookup.dtype || feed.NumElements() == 0) continue;
      if (rows == nullptr) rows = std::make_shared<EarlyRows>(tables_);
      Want(lookup, feed, view, rows.get());
    }
  };
  want(request);
  for (const DecodedRequest& next : request.next) want(next);
  return rows != nullptr && rows->Prepare() ? rows : nullptr;
}

void EarlyLookups::Want(const Lookup& lookup, const tensorflow::Tensor& feed, const EpochView* view, EarlyRows* rows) {
  thread_local const auto scratch = std::make_unique<Scratch>();
  const bool at_epoch = lookup.live >= 0 && view != nullptr;
  const auto find = [&](const auto* keys, size_t n) {
    if (at_epoch) {
      view->table(lookup.live).FindRows(absl::MakeConstSpan(keys, n), scratch->rows);
    } else {
      lookup.table->FindRows(absl::MakeConstSpan(keys, n), scratch->rows);
    }
  };
  const auto count = static_cast<size_t>(feed.NumElements());
  for (size_t first = 0; first < count; first += kPortion) {
    const size_t n = std::min(kPortion, count - first);
    const void* const values = static_cast<const char*>(feed.data()) + first * lookup.steps.value_size();
    bool any_none;
    if (!lookup.steps.gives_strings()) {
      any_none = lookup.steps.Numbers(values, n, scratch->numbers, scratch->none);
      find(scratch->numbers, n);
    } else if (lookup.steps.passes_strings()) {
      any_none = lookup.steps.Strings(values, n, nullptr, scratch->none);
      find(static_cast<const tensorflow::tstring*>(values), n);
    } else {
      any_none = lookup.steps.Strings(values, n, scratch->strings, scratch->none);
      find(scratch->strings, n);
    }
    for (size_t i = 0; any_none && i < n; ++i) {
      if (scratch->none[i]) scratch->rows[i] = kZeroRow;
    }
    rows->Want(lookup.table->tiered(), absl::MakeConstSpan(scratch->rows, n));
  }
}

}  // namespace processor
