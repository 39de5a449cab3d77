// SPDX-License-Identifier: Apache-2.0
#include "src/storage/elastic_table.h"

#include <algorithm>
#include <stdexcept>
#include <utility>

namespace elastic_training {
namespace {

// Names the table in what its parts refuse.
template <typename Make>
auto MakeFor(const TableConfig& config, const Make& make) {
  try {
    return make();
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument("table '" + config.name + "' " + error.what());
  }
}

}  // namespace

ElasticTable::ElasticTable(TableConfig config)
    : config_(std::move(config)),
      optimizer_(MakeFor(config_, [&] { return Optimizer::Create(config_.optimizer, config_.dim); })),
      admission_(MakeFor(config_, [&] { return Admission::Create(config_.admission, config_.seed); })),
      initial_(MakeFor(config_, [&] { return InitialRow(config_.initializer, config_.seed, config_.dim); })),
      store_(RowLayout(config_.dim, optimizer_->slots(), config_.string_keys), *optimizer_, initial_),
      directory_(&store_) {
  if (optimizer_->tells_outcomes() && config_.default_value != 0) {
    throw std::invalid_argument("table '" + config_.name +
                                "' default: group lasso makes rows zero, so the default row must be zeros too");
  }
  if (config_.tiers.enabled) {
    LogSettings settings;
    settings.folder = config_.tiers.folder;
    settings.values = layout().dim + layout().slots;
    settings.limit_bytes = config_.tiers.ssd_bytes;
    // Small tables have small files, so that they have many too.
    settings.least_file_bytes =
        std::clamp<size_t>(config_.tiers.memory_bytes / 64, size_t{64} << 10, settings.least_file_bytes);
    store_.log = std::make_unique<RowLog>(settings);
  }
}

RowCounts ElasticTable::counts() const {
  RowCounts sum;
  uint64_t cursor = 0;
  do {
    cursor = WithSegment<true>(cursor, [&](const Segment* segment) {
      const RowCounts& one = segment->counts();
      sum.full += one.full;
      sum.candidates += one.candidates;
      sum.released += one.released;
      sum.zero += one.zero;
      sum.ssd += one.ssd;
    });
  } while (cursor != 0);
  return sum;
}

size_t ElasticTable::bytes() const {
  size_t sum = store_.full.bytes() + store_.records.bytes() + directory_.bytes() + admission_->bytes();
  uint64_t cursor = 0;
  do {
    cursor = WithSegment<true>(cursor, [&](const Segment* segment) { sum += segment->bytes(); });
  } while (cursor != 0);
  return sum;
}

size_t ElasticTable::free_bytes(const RowCounts& rows) const {
  const size_t used = rows.full * layout().full_bytes + (rows.candidates + rows.released) * layout().record_bytes;
  const size_t taken = store_.full.bytes() + store_.records.bytes();
  return taken > used ? taken - used : 0;
}

size_t ElasticTable::recorded_evictions() const {
  const std::lock_guard<std::mutex> lock(tombstones_mutex_);
  size_t sum = 0;
  for (const Tombstones& one : tombstones_) sum += one.keys.size();
  return sum;
}

nlohmann::json ElasticTable::Stats() const {
  const RowCounts rows = counts();
  nlohmann::json stats = {{"name", config_.name},
                          {"step", step()},
                          {"occurrences", occurrences()},
                          {"rows", rows.full + rows.released + rows.ssd},
                          {"full_rows", rows.full},
                          {"released_rows", rows.released},
                          {"zero_rows", rows.zero + rows.released},
                          {"candidates", rows.candidates},
                          {"bytes", bytes()},
                          {"used_bytes", bytes() - free_bytes(rows)},
                          {"row_bytes", layout().full_bytes},
                          {"record_bytes", layout().record_bytes},
                          {"filter_bytes", admission_->bytes()},
                          {"admitted", admitted_.load()},
                          {"refused", refused_.load()},
                          {"evicted", evicted_.load()},
                          {"recorded_evictions", recorded_evictions()},
                          {"released", released_.load()},
                          {"updated", updated_.load()},
                          {"refused_updates", refused_updates_.load()},
                          {"dropped_updates", dropped_updates_.load()}};
  stats["filter"] = admission_->Stats();
  return stats;
}

}  // namespace elastic_training
