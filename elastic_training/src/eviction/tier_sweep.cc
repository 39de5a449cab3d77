// SPDX-License-Identifier: Apache-2.0
#include "src/eviction/tier_sweep.h"

#include <algorithm>
#include <chrono>
#include <nlohmann/json.hpp>
#include <string>

#include "src/base/hash.h"

namespace elastic_training {
namespace {

constexpr size_t kSampleTouches = 4096;
// The memory besides rows is measured when that of rows has changed by this part of the limit.
constexpr size_t kMeasures = 64;
// Sweeps begin at the limit, and end below it, so that not every call samples anew.
constexpr double kKeep = 0.97;

bool AllZeros(const float* values, size_t count) {
  return std::all_of(values, values + count, [](float value) { return value == 0; });
}

}  // namespace

void TierSweep::Measure() {
  const RowCounts rows = table_->counts();
  const size_t used = table_->bytes() - table_->free_bytes(rows);
  const size_t in_rows = table_->row_memory();
  other_bytes_ = used > in_rows ? used - in_rows : 0;
  measured_at_ = in_rows;
  measured_ = true;
}

void TierSweep::CheckIndexFits() const {
  const RowCounts rows = table_->counts();
  const auto records = static_cast<size_t>(rows.candidates + rows.released);
  const auto others = static_cast<size_t>(rows.full + rows.ssd);
  const size_t least = other_bytes_ + records * table_->layout().record_bytes + others * SsdIndex::kRowBytes;
  const TiersConfig& tiers = table_->config().tiers;
  if (least <= tiers.memory_bytes) return;
  throw SsdError(SsdError::Kind::kFull, "keys and index of " + std::to_string(records + others) + " rows take " +
                                            std::to_string(least) + " bytes, of at most " +
                                            std::to_string(tiers.memory_bytes) +
                                            " of memory; raise memory, or evict rows");
}

void TierSweep::FindCut() {
  const size_t keep = static_cast<size_t>(kKeep * static_cast<double>(table_->config().tiers.memory_bytes));
  const size_t a_row = table_->layout().full_bytes - SsdIndex::kRowBytes;
  const double wanted = static_cast<double>(Used() - std::min(Used(), keep)) / static_cast<double>(a_row);
  std::vector<uint32_t> touches;
  uint64_t cursor = cursor_;
  do {
    cursor = table_->VisitHeaders(cursor, [&](const RowView& row) {
      if (row.weights != nullptr && touches.size() < 2 * kSampleTouches) touches.push_back(row.touch);
    });
  } while (cursor != cursor_ && touches.size() < kSampleTouches && !(cursor == 0 && cursor_ == 0));
  has_cut_ = true;
  if (touches.empty()) return;
  std::sort(touches.begin(), touches.end());
  const double share = std::min(wanted / static_cast<double>(std::max<int64_t>(table_->rows_in_memory(), 1)), 1.0);
  const size_t at = std::min(static_cast<size_t>(share * static_cast<double>(touches.size())), touches.size() - 1);
  cut_ = touches[at];
  const auto equal = std::equal_range(touches.begin(), touches.end(), cut_);
  const double below = static_cast<double>(equal.first - touches.begin());
  cut_share_ = (share * static_cast<double>(touches.size()) - below) / static_cast<double>(equal.second - equal.first);
}

void TierSweep::SweepSegment() {
  const bool skips_zeros = table_->optimizer().tells_outcomes();
  const size_t dim = table_->layout().dim;
  size_t moved = 0;
  const uint64_t next = table_->Sweep(cursor_, [&](const RowView& row) {
    if (row.weights == nullptr || row.touch > cut_) return RowFate::kKeep;
    // Rows of equal times move by chance, others in each round.
    if (row.touch == cut_ && FractionOf(Mix(row.key + rounds_ * kGoldenStep)) > cut_share_) {
      return RowFate::kKeep;
    }
    // Sweeps of group lasso give rows of zeros back, which takes less memory.
    if (skips_zeros && AllZeros(row.weights, dim)) return RowFate::kKeep;
    ++moved;
    return RowFate::kMoveToSsd;
  });
  moved_ += moved;
  cursor_ = next;
  if (cursor_ != 0) return;
  ++rounds_;
  has_cut_ = false;
}

void TierSweep::AfterUpdate() {
  RowLog* const log = table_->log();
  if (log == nullptr) return;
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock) return;  // Another thread takes the step.
  if (const size_t owed = log->Owed(); owed != 0) {
    log->Reclaim(owed, [this](RowLog::Moved* rows, size_t count) { table_->MoveInLog(rows, count); });
  }
  const size_t limit = table_->config().tiers.memory_bytes;
  // Measuring takes the lock of each segment.
  const size_t rows = table_->row_memory();
  const size_t change = rows > measured_at_ ? rows - measured_at_ : measured_at_ - rows;
  if (!measured_ || change > limit / kMeasures) Measure();
  if (Used() <= limit && !has_cut_) return;
  if (Used() > limit) {
    Measure();
    CheckIndexFits();
  }
  const size_t keep = static_cast<size_t>(kKeep * static_cast<double>(limit));
  const auto end = std::chrono::steady_clock::now() + std::chrono::duration<double>(step_s_);
  const uint64_t rounds = rounds_;
  // Three rounds without success: the rows that remain may not move.
  while (Used() > keep && rounds_ < rounds + 3) {
    if (Used() <= limit && std::chrono::steady_clock::now() > end) return;
    if (!has_cut_) FindCut();
    SweepSegment();
  }
  has_cut_ = false;
}

nlohmann::json TierSweep::Stats() const {
  const RowLog* const log = table_->log();
  if (log == nullptr) return nullptr;
  const RowCounts rows = table_->counts();
  const std::lock_guard<std::mutex> lock(mutex_);
  return {{"memory_limit", table_->config().tiers.memory_bytes}, {"memory_rows", rows.full}, {"ssd_rows", rows.ssd},
          {"ssd_index_bytes", table_->ssd_index_bytes()},        {"moved_to_ssd", moved_},   {"log", log->Stats()}};
}

}  // namespace elastic_training
