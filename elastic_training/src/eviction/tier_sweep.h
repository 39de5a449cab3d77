// SPDX-License-Identifier: Apache-2.0
// Moves the rows that were not touched for longest to SSD while training goes on, and has the log reclaimed.
//
// After each update of a table whose memory has reached its limit, steps pass over segments in the order of hashes, and move
// the rows that were touched before a time. The time is a quantile of a sample of rows (keys of a segment are a random
// sample). A step takes about a millisecond, unless rows come in faster than that: then as long as is needed to keep the
// memory.
#ifndef ELASTIC_TRAINING_EVICTION_TIER_SWEEP_H_
#define ELASTIC_TRAINING_EVICTION_TIER_SWEEP_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "src/storage/elastic_table.h"

namespace elastic_training {

class TierSweep {
 public:
  /// The table must outlive this object; without a log, nothing ever happens.
  explicit TierSweep(ElasticTable* table, double step_s = 1e-3) : table_(table), step_s_(step_s) {}

  /// Takes a step. For every call that adds rows; any thread may call. The caller is a writer (src/cut/writers.h).
  /// \throws SsdError if the tier is full, its device fails, or the memory is too small for the index.
  void AfterUpdate();

  /// Returns counters: rows in memory, on SSD and moved, memory and the log; null without a log.
  nlohmann::json Stats() const;

 private:
  size_t Used() const { return other_bytes_ + table_->row_memory(); }
  void Measure();
  void CheckIndexFits() const;
  void FindCut();
  void SweepSegment();

  ElasticTable* const table_;
  const double step_s_;
  mutable std::mutex mutex_;  // Guards all that follows.
  // Memory besides rows, and memory of rows when it was measured.
  size_t other_bytes_ = 0, measured_at_ = 0;
  bool measured_ = false;
  bool has_cut_ = false;
  // Rows touched before the cut move, and this share of those at it.
  uint32_t cut_ = 0;
  double cut_share_ = 0;
  uint64_t cursor_ = 0, rounds_ = 0;
  size_t moved_ = 0;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_EVICTION_TIER_SWEEP_H_
