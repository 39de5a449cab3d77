// SPDX-License-Identifier: Apache-2.0
#include "src/host/host_stats.h"

#include <algorithm>

#include "src/codec/codec.h"

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

VersionStats::~VersionStats() {
  for (const auto& protocol : protocols_) delete protocol.load();
}

ProtocolStats* VersionStats::Of(int protocol) {
  std::atomic<ProtocolStats*>& place = protocols_[static_cast<size_t>(std::min(protocol, kMaxProtocols - 1))];
  ProtocolStats* found = place.load(std::memory_order_acquire);
  if (found != nullptr) return found;
  auto made = std::make_unique<ProtocolStats>();
  if (place.compare_exchange_strong(found, made.get(), std::memory_order_acq_rel)) return made.release();
  return found;  // another thread was first
}

void VersionStats::Record(int protocol, ChoiceReason reason, absl::StatusCode code, const RequestTiming& timing) {
  ProtocolStats& stats = *Of(protocol);
  stats.outcomes.Add(code);
  stats.duration.Record(timing.total_ns);
  chosen_[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  // What never ran would make both look short.
  if (timing.run_ns == 0) return;
  queue_.Record(timing.queue_ns);
  run_.Record(timing.run_ns);
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
