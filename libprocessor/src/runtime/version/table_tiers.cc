// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/version/table_tiers.h"

#include <algorithm>
#include <filesystem>
#include <set>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "src/base/log.h"
#include "src/kernels/embedding_table_resource.h"
#include "src/tables/table_file.h"
#include "src/tables/table_header.h"

namespace processor {
namespace {

namespace fs = std::filesystem;

absl::Status AddSizes(const std::string& path, TableSizes* sizes, std::set<FileIdentity>* seen) {
  TableFile file(path);
  if (absl::Status s = file.Open(); !s.ok()) return s;
  if (!seen->insert(file.identity()).second) return absl::OkStatus();
  uint8_t bytes[kTableHeaderBytes] = {};
  if (absl::Status s = file.Read(0, std::min<uint64_t>(kTableHeaderBytes, file.identity().size), bytes); !s.ok()) {
    return s;
  }
  TableHeader header;
  if (absl::Status s = ParseTableHeader(bytes, file.identity().size, &header); !s.ok()) return file.Named(s);
  sizes->index_bytes += header.index.size + header.key_offsets.size + header.key_bytes.size + header.checksums.size;
  sizes->row_bytes += header.row_data.size;
  return absl::OkStatus();
}

}  // namespace

absl::Status ReadTableSizes(const std::string& saved_model_dir, TableSizes* sizes) {
  *sizes = {};
  std::set<FileIdentity> seen;
  std::error_code error;
  fs::directory_iterator it(fs::path(saved_model_dir) / "assets", error), end;
  for (; !error && it != end; it.increment(error)) {
    if (it->path().extension() != ".emb") continue;
    if (absl::Status s = AddSizes(it->path().string(), sizes, &seen); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status CacheShare(const TableOptions& options, const TableSizes& sizes, double* share) {
  const auto memory = static_cast<uint64_t>(options.memory);
  if (sizes.row_bytes > 0 && memory <= sizes.index_bytes) {
    return absl::InvalidArgumentError(absl::StrCat("config key 'tables.memory': ", memory,
                                                   " bytes found, expected more "
                                                   "than ",
                                                   sizes.index_bytes, ", which the indexes of the tables take"));
  }
  *share =
      sizes.row_bytes == 0 ? 0 : static_cast<double>(memory - sizes.index_bytes) / static_cast<double>(sizes.row_bytes);
  return absl::OkStatus();
}

absl::Status SetTableTier(const TableOptions& options, const std::string& saved_model_dir,
                          tensorflow::GraphDef* graph) {
  if (options.tier == TableTier::kMapped) return absl::OkStatus();
  double share = 0;
  if (options.tier == TableTier::kTiered) {
    TableSizes sizes;
    if (absl::Status s = ReadTableSizes(saved_model_dir, &sizes); !s.ok()) return s;
    if (absl::Status s = CacheShare(options, sizes, &share); !s.ok()) return s;
  }
  bool any = false;
  const auto set = [&](tensorflow::NodeDef* node) {
    if (node->op() != "RecInitializeEmbeddingTable") return;
    any = true;
    auto& attributes = *node->mutable_attr();
    if (options.tier == TableTier::kTiered) {
      attributes["tiered"].set_b(true);
      attributes["cache_share"].set_f(static_cast<float>(share));
    } else {
      attributes["resident"].set_b(true);
      attributes["share_folder"].set_s(options.share_folder);
    }
  };
  for (auto& node : *graph->mutable_node()) set(&node);
  for (auto& function : *graph->mutable_library()->mutable_function()) {
    for (auto& node : *function.mutable_node_def()) set(&node);
  }
  if (!any) {
    Log(Severity::kWarning, absl::StrCat("config key 'tables': no effect: '", saved_model_dir,
                                         "' has no tables that `graph-tools optimize` or `fuse` has made"));
  }
  return absl::OkStatus();
}

std::vector<std::shared_ptr<const EmbeddingTable>> TablesOf(const tensorflow::GraphDef& graph,
                                                            tensorflow::ResourceMgr* resources) {
  std::vector<std::shared_ptr<const EmbeddingTable>> tables;
  for (const tensorflow::NodeDef& node : graph.node()) {
    if (node.op() != "RecEmbeddingTable") continue;
    const auto text = [&](const char* key) {
      const auto attr = node.attr().find(key);
      return attr == node.attr().end() ? std::string() : attr->second.s();
    };
    const std::string container = text("container"), name = text("shared_name");
    EmbeddingTableResource* found = nullptr;
    if (!resources
             ->Lookup(container.empty() ? resources->default_container() : container, name.empty() ? node.name() : name,
                      &found)
             .ok()) {
      continue;
    }
    const tensorflow::core::RefCountPtr<EmbeddingTableResource> owned(found);
    if (std::find(tables.begin(), tables.end(), owned->shared_table()) == tables.end()) {
      tables.push_back(owned->shared_table());
    }
  }
  return tables;
}

nlohmann::ordered_json TierState::Json() const {
  if (resident.has_value()) {
    return {{"tier", "resident"},
            {"bytes", resident->bytes},
            {"pages", PageKindName(resident->pages)},
            {"huge_bytes", resident->huge_bytes},
            {"received_bytes", resident->received_bytes}};
  }
  return {{"tier", "tiered"},
          {"warming", rows.warming()},
          {"index_bytes", index_bytes},
          {"cache_bytes", rows.cache_bytes},
          {"cache_rows", rows.cache_rows},
          {"cached_rows", rows.cached_rows},
          {"lookups", rows.lookups},
          {"hits", rows.hits},
          {"early_rows", rows.early_rows},
          {"reads", rows.reads},
          {"read_bytes", rows.read_bytes},
          {"blocks", rows.blocks},
          {"checked_blocks", rows.checked_blocks},
          {"bad_blocks", rows.bad_blocks}};
}

std::optional<TierState> TierStateOf(const std::vector<std::shared_ptr<const EmbeddingTable>>& tables) {
  std::optional<TierState> state;
  for (const auto& table : tables) {
    if (table->tiered() == nullptr && table->resident() == nullptr) continue;
    if (!state.has_value()) state.emplace();
    if (const ResidentTable* const resident = table->resident()) {
      if (!state->resident.has_value()) state->resident.emplace();
      const ResidentMemory& memory = resident->memory();
      state->resident->bytes += memory.size();
      state->resident->huge_bytes += memory.huge_bytes();
      state->resident->received_bytes += resident->is_received() ? memory.size() : 0;
      state->resident->pages = std::max(state->resident->pages, memory.page_kind());
      continue;
    }
    state->index_bytes += table->index_bytes();
    state->rows.Add(table->tiered()->stats());
  }
  return state;
}

}  // namespace processor
