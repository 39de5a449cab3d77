// SPDX-License-Identifier: Apache-2.0
#include "src/tables/tiered_rows.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"

namespace processor {

absl::Status TieredRows::Open(const TableFile& file, std::unique_ptr<const DirectFile> direct,
                              const TableHeader& header, std::unique_ptr<const uint32_t[]> checksums,
                              uint64_t cache_bytes, std::unique_ptr<TieredRows>* rows) {
  std::unique_ptr<TieredRows> opened(new TieredRows);
  opened->path_ = file.path();
  opened->row_offset_ = header.row_data.offset;
  opened->num_rows_ = header.rows + header.default_rows;
  opened->runs_ = RowRuns(header);
  opened->blocks_end_ = header.checksums.offset;
  opened->num_blocks_ = header.checksums.size / sizeof(uint32_t);
  opened->checksums_ = std::move(checksums);
  if (header.row_data.size > 0) {
    opened->first_block_ = opened->BlockOf(header.row_data.offset);
    opened->last_block_ = opened->BlockOf(header.row_data.offset + header.row_data.size - 1) + 1;
  }
  try {
    opened->checked_.reset(new std::atomic<uint64_t>[opened->num_blocks_ / 64 + 1]());
    opened->caches_ = std::make_unique<RowCaches>(cache_bytes, opened->runs_);
  } catch (const std::bad_alloc&) {
    return file.Named(absl::ResourceExhaustedError(absl::StrCat("no memory for caches of ", cache_bytes, " bytes")));
  }
  opened->file_ = std::move(direct);
  *rows = std::move(opened);
  return absl::OkStatus();
}

uint64_t TieredRows::EndOf(uint64_t block) const { return std::min(BeginOf(block + 1), blocks_end_); }

void TieredRows::SetChecked(uint64_t block) {
  const uint64_t bit = uint64_t{1} << block % 64;
  const bool is_new = (checked_[block / 64].fetch_or(bit, std::memory_order_acq_rel) & bit) == 0;
  if (is_new && block >= first_block_ && block < last_block_) checked_blocks_.fetch_add(1, std::memory_order_relaxed);
}

absl::Status TieredRows::Named(absl::Status status) const { return NamedByFile(status, path_); }

absl::Status TieredRows::BadBlock(uint64_t block) const {
  return Named(absl::DataLossError(absl::StrCat("block ", block, " of ", num_blocks_, ": wrong checksum")));
}

void TieredRows::Stats::Add(const Stats& other) {
  cache_bytes += other.cache_bytes;
  cache_rows += other.cache_rows;
  cached_rows += other.cached_rows;
  lookups += other.lookups;
  hits += other.hits;
  early_rows += other.early_rows;
  reads += other.reads;
  read_bytes += other.read_bytes;
  blocks += other.blocks;
  checked_blocks += other.checked_blocks;
  bad_blocks += other.bad_blocks;
}

TieredRows::Stats TieredRows::stats() const {
  Stats stats;
  stats.cache_bytes = caches_->bytes();
  stats.cache_rows = caches_->places();
  stats.cached_rows = caches_->used();
  const uint64_t misses = misses_.load(std::memory_order_relaxed);
  stats.lookups = lookups_.load(std::memory_order_relaxed);
  stats.hits = stats.lookups - std::min(stats.lookups, misses);
  stats.early_rows = early_rows_.load(std::memory_order_relaxed);
  stats.reads = reads_.load(std::memory_order_relaxed);
  stats.read_bytes = read_bytes_.load(std::memory_order_relaxed);
  stats.blocks = last_block_ - first_block_;
  stats.checked_blocks = checked_blocks_.load(std::memory_order_relaxed);
  stats.bad_blocks = bad_blocks_.load(std::memory_order_relaxed);
  return stats;
}

}  // namespace processor
