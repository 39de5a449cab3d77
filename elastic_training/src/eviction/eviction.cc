// SPDX-License-Identifier: Apache-2.0
#include "src/eviction/eviction.h"

#include <algorithm>
#include <chrono>
#include <ctime>
#include <limits>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <string>
#include <utility>

#include "src/base/hash.h"
#include "src/config/json_fields.h"
#include "src/cut/writers.h"

namespace elastic_training {
namespace {

constexpr size_t kSampleRows = 8192;
constexpr uint32_t kUpdatesBetweenChecks = 64;
constexpr size_t kRowsBetweenClocks = 64;
constexpr double kNoCut = -std::numeric_limits<double>::infinity();

double Seconds() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// CPU time of this thread: what a step costs, however busy the machine is.
double CpuSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

template <typename Make>
auto OfTable(const ElasticTable& table, const Make& make) {
  try {
    return make();
  } catch (const std::invalid_argument& error) {
    throw std::invalid_argument("table '" + table.config().name + "' " + error.what());
  }
}

nlohmann::json Part(const nlohmann::json& config, const char* name) {
  const auto found = config.find(name);
  return found == config.end() ? nlohmann::json() : *found;
}

bool IsZero(const RowView& row, size_t dim) {
  return std::all_of(row.weights, row.weights + dim, [](float weight) { return weight == 0; });
}

}  // namespace

Eviction::Eviction(ElasticTable* table, double step_s)
    : table_(table),
      step_s_(step_s),
      strategy_(OfTable(
          *table, [&] { return EvictionStrategy(Part(table->config().eviction, "strategy"), table->config().dim); })),
      releases_(table->optimizer().tells_outcomes()),
      cut_(kNoCut) {
  OfTable(*table, [&] {
    const nlohmann::json& config = table_->config().eviction;
    JsonFields("eviction", config).RefuseOthers({"triggers", "strategy"});
    const nlohmann::json triggers = Part(config, "triggers");
    if (!triggers.is_null() && !triggers.is_array()) {
      throw std::invalid_argument("eviction: triggers is " + triggers.dump() + ", expected an array");
    }
    for (const nlohmann::json& trigger : triggers) {
      const JsonFields fields("eviction trigger", trigger);
      const std::string kind = fields.Text("kind", "", {"rows", "bytes", "interval"});
      if (kind == "interval") {
        fields.RefuseOthers({"kind", "seconds"});
        const double seconds = fields.Number("seconds", 60, 1e-9, 1e9);
        interval_s_ = interval_s_ > 0 ? std::min(interval_s_, seconds) : seconds;
      } else {
        fields.RefuseOthers({"kind", "limit", "keep"});
        limits_.push_back({fields.Number("limit", 0, 1, 1e18), fields.Number("keep", 0.9, 0, 1), kind == "bytes"});
      }
    }
    return 0;
  });
  // Without an eviction of their own, tables of group lasso look for rows to give back once a minute.
  if (releases_ && table_->config().eviction.empty()) interval_s_ = 60;
}

double Eviction::RowBytes(const RowView& row) const {
  if (row.weights != nullptr) return static_cast<double>(table_->layout().full_bytes);
  return static_cast<double>(row.kind == RowKind::kFull ? SsdIndex::kRowBytes : table_->layout().record_bytes);
}

double Eviction::UsedBytes(const RowCounts& rows) const {
  return static_cast<double>(table_->bytes()) - static_cast<double>(table_->free_bytes(rows));
}

bool Eviction::Due(uint32_t now) {
  if (interval_s_ > 0 && static_cast<double>(now) - last_begin_ >= interval_s_) return true;
  if (limits_.empty()) return false;
  // Counting rows takes the lock of each segment.
  if (now == checked_ && ++updates_since_check_ < kUpdatesBetweenChecks) return false;
  checked_ = now;
  updates_since_check_ = 0;
  const RowCounts rows = table_->counts();
  return std::any_of(limits_.begin(), limits_.end(), [&](const Limit& limit) {
    return (limit.bytes ? UsedBytes(rows) : static_cast<double>(rows.full + rows.ssd)) > limit.limit;
  });
}

void Eviction::Begin(uint32_t now) {
  now_ = last_begin_ = now;
  cursor_ = 0;
  passed_ = 0;
  sample_.clear();
  cut_ = kNoCut;
  evicted_by_sweep_ = 0;
  phase_ = limits_.empty() || !strategy_.evicts() ? Phase::kSweep : Phase::kSample;
}

void Eviction::AfterUpdate(uint32_t now) {
  if (limits_.empty() && interval_s_ == 0) return;
  const std::unique_lock<std::mutex> lock(mutex_, std::try_to_lock);
  if (!lock) return;  // Another thread takes the step.
  if (!begun_) {
    begun_ = true;
    last_begin_ = now;
  }
  if (phase_ == Phase::kIdle) {
    if (!Due(now)) return;
    Begin(now);
  }
  Step();
}

size_t Eviction::Run(uint32_t now) {
  for (bool first = true;; first = false) {
    // Cuts may begin between two steps.
    const Writing writing;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (first) {
      begun_ = true;
      Begin(now);
    } else if (phase_ == Phase::kIdle) {
      return evicted_by_sweep_;
    } else {
      Step();
    }
  }
}

bool Eviction::running() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return phase_ != Phase::kIdle;
}

void Eviction::Step() {
  const double start = CpuSeconds(), end = Seconds() + step_s_;
  // Segments of small tables take microseconds. At one a step, a sweep would take as many updates as there are segments.
  do {
    if (phase_ == Phase::kSample) {
      SampleSegment();
    } else {
      SweepSegment(end);
    }
  } while (phase_ != Phase::kIdle && Seconds() < end);
  longest_step_s_ = std::max(longest_step_s_, CpuSeconds() - start);
}

void Eviction::SampleSegment() {
  cursor_ = table_->VisitHeaders(cursor_, [&](const RowView& row) {
    if (sample_.size() < 2 * kSampleRows) {
      sample_.push_back({strategy_.Value(row, now_), RowBytes(row), row.kind == RowKind::kFull});
    }
  });
  if (cursor_ != 0 && sample_.size() < kSampleRows) return;
  FindCut();
  sample_ = std::vector<Sampled>();
  cursor_ = 0;
  phase_ = Phase::kSweep;
}

void Eviction::FindCut() {
  const RowCounts rows = table_->counts();
  for (const Limit& limit : limits_) {
    const double used = limit.bytes ? UsedBytes(rows) : static_cast<double>(rows.full + rows.ssd);
    if (used <= limit.limit) continue;
    // What does not leave with rows, as the filter, makes the share of rows that leave larger.
    const double in_rows =
        limit.bytes ? rows.full * static_cast<double>(table_->layout().full_bytes) +
                          (rows.candidates + rows.released) * static_cast<double>(table_->layout().record_bytes) +
                          rows.ssd * static_cast<double>(SsdIndex::kRowBytes)
                    : used;
    if (in_rows > 0) RaiseCut(limit, std::min((used - limit.keep * limit.limit) / in_rows, 1.0));
  }
}

// Finds the quantile of the values, by bytes or by full rows.
void Eviction::RaiseCut(const Limit& limit, double excess_share) {
  std::sort(sample_.begin(), sample_.end(), [](const Sampled& a, const Sampled& b) { return a.value < b.value; });
  const auto weight = [&](const Sampled& row) { return limit.bytes ? row.bytes : row.full ? 1.0 : 0.0; };
  double total = 0;
  for (const Sampled& row : sample_) total += weight(row);
  const double excess = excess_share * total;
  double below = 0;
  for (size_t i = 0; i < sample_.size();) {
    double equal = 0;
    const double value = sample_[i].value;
    for (; i < sample_.size() && sample_[i].value == value; ++i) equal += weight(sample_[i]);
    if (below + equal < excess) {
      below += equal;
      continue;
    }
    const double share = equal > 0 ? (excess - below) / equal : 0;
    if (std::pair(value, share) > std::pair(cut_, cut_share_)) {
      cut_ = value;
      cut_share_ = share;
    }
    return;
  }
}

RowFate Eviction::FateOf(const RowView& row) const {
  if (strategy_.evicts()) {
    const double value = strategy_.Value(row, now_);
    if (value < cut_ || strategy_.Condemns(row, value)) return RowFate::kEvict;
    // Rows of equal values leave by chance, another one in each sweep.
    if (value == cut_ && FractionOf(Mix(row.key + sweeps_ * kGoldenStep)) < cut_share_) {
      return RowFate::kEvict;
    }
  }
  if (releases_ && row.weights != nullptr && IsZero(row, table_->layout().dim) &&
      table_->optimizer().ShallRelease(row.weights, table_->step())) {
    return RowFate::kRelease;
  }
  return RowFate::kKeep;
}

void Eviction::SweepSegment(double end) {
  size_t seen = 0, evicted = 0;
  bool stopped = false;
  const uint64_t next = table_->Sweep(cursor_, [&](const RowView& row) {
    if (stopped || seen < passed_) {
      seen += !stopped;
      return RowFate::kKeep;
    }
    ++seen;
    const RowFate fate = FateOf(row);
    evicted += fate == RowFate::kEvict;
    released_ += fate == RowFate::kRelease;
    if (seen % kRowsBetweenClocks == 0) stopped = Seconds() > end;
    return fate;
  });
  evicted_ += evicted;
  evicted_by_sweep_ += evicted;
  if (stopped) {
    // The next step goes on behind these rows. If the index has changed meanwhile, a few rows wait for the next sweep.
    passed_ = seen - evicted;
    return;
  }
  passed_ = 0;
  cursor_ = next;
  if (cursor_ == 0) {
    phase_ = Phase::kIdle;
    ++sweeps_;
  }
}

nlohmann::json Eviction::Stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return {{"sweeps", sweeps_},
          {"sweep_evicted", evicted_},
          {"sweep_released", released_},
          {"longest_step_cpu_s", longest_step_s_}};
}

}  // namespace elastic_training
