// SPDX-License-Identifier: Apache-2.0
#include "src/host/requests/host_stats.h"

#include <algorithm>
#include <chrono>

#include "src/codec/protocols.h"

namespace processor {

const char* ShedName(ShedReason reason) {
  switch (reason) {
    case ShedReason::kQueue:
      return "queue";
    case ShedReason::kInFlight:
      return "in_flight";
    case ShedReason::kDeadline:
      return "deadline";
    case ShedReason::kPriority:
      return "priority";
    case ShedReason::kDraining:
      return "draining";
  }
  return "";
}

int ProtocolPlace(std::string_view protocol) {
  const std::vector<std::string>& protocols = Protocols();
  for (size_t i = 0; i < protocols.size() && i < kMaxProtocols; ++i) {
    if (protocols[i] == protocol) return static_cast<int>(i);
  }
  return kMaxProtocols;
}

void OutcomeCounts::Add(absl::StatusCode code) {
  const int number = static_cast<int>(code);
  const bool known = number >= 0 && number < kStatusCodes;
  counts_[known ? number : static_cast<int>(absl::StatusCode::kUnknown)].fetch_add(1, std::memory_order_relaxed);
}

void InferenceTotals::Add(absl::StatusCode code, const RequestTiming& timing, int64_t rows) {
  const auto add = [this](Field field, int64_t value) {
    sums_[field].fetch_add(static_cast<uint64_t>(std::max<int64_t>(0, value)), std::memory_order_relaxed);
  };
  if (code != absl::StatusCode::kOk) {
    add(kFailed, 1);
    add(kFailedNs, timing.total_ns);
    return;
  }
  add(kSucceeded, 1);
  add(kSucceededNs, timing.total_ns);
  add(kRows, rows);
  add(kQueueNs, timing.queue_ns);
  add(kDecodeNs, timing.decode_ns);
  add(kRunNs, timing.run_ns);
  add(kEncodeNs, timing.encode_ns);
  last_ms_.store(static_cast<uint64_t>(UnixUs() / 1000), std::memory_order_relaxed);
}

InferenceTotals::Value InferenceTotals::Get() const {
  const auto get = [this](Field field) { return sums_[field].load(std::memory_order_relaxed); };
  Value value;
  value.succeeded = get(kSucceeded);
  value.failed = get(kFailed);
  value.rows = get(kRows);
  value.succeeded_ns = get(kSucceededNs);
  value.failed_ns = get(kFailedNs);
  value.queue_ns = get(kQueueNs);
  value.decode_ns = get(kDecodeNs);
  value.run_ns = get(kRunNs);
  value.encode_ns = get(kEncodeNs);
  value.last_ms = last_ms_.load(std::memory_order_relaxed);
  return value;
}

VersionStats::~VersionStats() {
  for (const auto& method : methods_) delete method.load();
}

std::vector<const MethodStats*> VersionStats::protocol(int protocol) const {
  const std::string& name = Protocols().at(static_cast<size_t>(protocol));
  std::vector<const MethodStats*> found;
  for (size_t i = 0; i < Methods().size(); ++i) {
    const MethodStats* const stats = Methods()[i].protocol == name ? method(static_cast<int>(i)) : nullptr;
    if (stats != nullptr) found.push_back(stats);
  }
  return found;
}

MethodStats* VersionStats::Of(int method) {
  std::atomic<MethodStats*>& place = methods_[static_cast<size_t>(std::min(method, kMaxMethods - 1))];
  MethodStats* found = place.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  auto made = std::make_unique<MethodStats>();
  if (place.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel)) return made.release();
  return found;  // another thread has added it first
}

void VersionStats::Record(int method, ChoiceReason reason, absl::StatusCode code, const RequestTiming& timing,
                          int64_t rows) {
  totals_.Add(code, timing, rows);
  MethodStats& stats = *Of(method);
  stats.outcomes.Add(code);
  stats.duration.Record(timing.total_ns);
  chosen_[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  // Requests that never ran would lower both times.
  if (timing.run_ns == 0) return;
  queue_.Record(timing.queue_ns);
  run_.Record(timing.run_ns);
  stats.run.Record(timing.run_ns);
}

std::shared_ptr<VersionStats> HostStats::Of(const std::string& model, int64_t version) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::shared_ptr<VersionStats>& stats = versions_[{model, version}];
  if (stats == nullptr) stats = std::make_shared<VersionStats>();
  return stats;
}

void HostStats::Keep(const std::vector<Key>& keep) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto it = versions_.begin(); it != versions_.end();) {
    it = std::find(keep.begin(), keep.end(), it->first) == keep.end() ? versions_.erase(it) : std::next(it);
  }
}

void HostStats::RecordUnrouted(int protocol, const absl::Status& status, bool draining) {
  unrouted_[static_cast<size_t>(protocol)].Add(status.code());
  if (draining) draining_.fetch_add(1, std::memory_order_relaxed);
}

std::map<HostStats::Key, std::shared_ptr<const VersionStats>> HostStats::versions() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return {versions_.begin(), versions_.end()};
}

}  // namespace processor
