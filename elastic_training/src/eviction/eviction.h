// SPDX-License-Identifier: Apache-2.0
// Sweeps that evict rows while training goes on.
//
// Triggers say when a sweep begins: more rows or bytes than a limit, an interval, or by hand. The strategy says
// which rows it evicts. A sweep passes over the segments in the order of hashes. After each update of the table one step is
// taken, of about a millisecond: it locks one segment at a time, whose rows other threads then wait for; all others they
// use.
//
// A limit wants more rows to leave than the strategy condemns: the sweep first reads the values of some thousand rows (keys
// of a segment are a random sample) and evicts all rows below the quantile that leaves `keep` times the limit.
//
// Rows of group lasso that have been zero for long enough are given back in the same pass.
#ifndef ELASTIC_TRAINING_EVICTION_EVICTION_H_
#define ELASTIC_TRAINING_EVICTION_EVICTION_H_

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "src/eviction/strategy.h"
#include "src/storage/elastic_table.h"

namespace elastic_training {

class Eviction {
 public:
  /// Reads the "eviction" object of the table's configuration. The table must outlive this object.
  /// \throws std::invalid_argument that names the table and the field.
  explicit Eviction(ElasticTable* table, double step_s = 1e-3);

  /// Takes a step of a sweep, or begins one if a trigger says so. For every update of the table; any thread may call.
  /// `now`: time [s] since 2020-01-01 UTC. The caller is a writer (src/cut/writers.h).
  void AfterUpdate(uint32_t now);

  /// Makes a sweep from its beginning to its end, and returns how many rows were evicted. Threads may train meanwhile,
  /// and cuts may begin between steps. The caller is not a writer.
  size_t Run(uint32_t now);

  /// Whether a sweep has begun and not ended.
  bool running() const;
  /// Returns counters: sweeps, rows evicted by sweeps (candidates included), the longest step [s of CPU time].
  nlohmann::json Stats() const;

 private:
  struct Limit {
    double limit, keep;
    bool bytes;
  };
  // A row of the sample.
  struct Sampled {
    double value, bytes;
    bool full;
  };
  enum class Phase { kIdle, kSample, kSweep };

  bool Due(uint32_t now);
  void Begin(uint32_t now);
  void Step();
  void SampleSegment();
  void SweepSegment(double end);
  void FindCut();
  void RaiseCut(const Limit& limit, double excess_share);
  RowFate FateOf(const RowView& row) const;
  double RowBytes(const RowView& row) const;
  double UsedBytes(const RowCounts& rows) const;

  ElasticTable* const table_;
  const double step_s_;
  const EvictionStrategy strategy_;
  std::vector<Limit> limits_;
  double interval_s_ = 0;
  bool releases_ = false;

  mutable std::mutex mutex_;  // Guards all that follows; steps of a sweep are one after the other.
  Phase phase_ = Phase::kIdle;
  uint32_t now_ = 0, last_begin_ = 0, checked_ = 0;
  bool begun_ = false;
  uint32_t updates_since_check_ = 0;
  uint64_t cursor_ = 0;
  size_t passed_ = 0;  // Rows of the segment at the cursor that have been passed.
  std::vector<Sampled> sample_;
  // Rows below the cut leave, and this share of those equal to it.
  double cut_, cut_share_ = 0;
  size_t sweeps_ = 0, evicted_ = 0, released_ = 0, evicted_by_sweep_ = 0;
  double longest_step_s_ = 0;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_EVICTION_EVICTION_H_
