// SPDX-License-Identifier: Apache-2.0
// Statistics of a host's requests. The host's control owns them; any thread may record and read.
#ifndef PROCESSOR_HOST_REQUESTS_HOST_STATS_H_
#define PROCESSOR_HOST_REQUESTS_HOST_STATS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "src/host/requests/route_table.h"
#include "src/host/requests/score_counts.h"
#include "src/runtime/stats/histogram.h"
#include "src/runtime/stats/stats.h"

namespace processor {

/// Why a request was refused at admission.
enum class ShedReason { kQueue, kInFlight, kDeadline, kPriority, kDraining };
constexpr int kShedReasons = 5;
const char* ShedName(ShedReason reason);

constexpr int kStatusCodes = 17;
constexpr int kMaxProtocols = 8;
constexpr int kMaxMethods = 64;
constexpr int kChoiceReasons = 4;

/// Counts requests by the status that they ended with.
class OutcomeCounts {
 public:
  void Add(absl::StatusCode code);
  uint64_t at(int code) const { return counts_[static_cast<size_t>(code)].load(std::memory_order_relaxed); }

 private:
  std::array<std::atomic<uint64_t>, kStatusCodes> counts_{};
};

/// Statistics of one version and one method of a protocol.
struct MethodStats {
  OutcomeCounts outcomes;
  Histogram duration, run;
};

/// Sums over all requests, for the statistics of the Open Inference Protocol.
class InferenceTotals {
 public:
  /// Adds a request that has ended. `rows`: how many it had, if it was answered.
  void Add(absl::StatusCode code, const RequestTiming& timing, int64_t rows);

  struct Value {
    uint64_t succeeded = 0, failed = 0;  // requests
    uint64_t rows = 0;                   // of those that succeeded
    uint64_t succeeded_ns = 0, failed_ns = 0, queue_ns = 0, decode_ns = 0, run_ns = 0, encode_ns = 0;
    uint64_t last_ms = 0;  // since 1970
  };
  Value Get() const;

 private:
  enum Field { kSucceeded, kFailed, kRows, kSucceededNs, kFailedNs, kQueueNs, kDecodeNs, kRunNs, kEncodeNs, kFields };
  std::array<std::atomic<uint64_t>, kFields> sums_{};
  std::atomic<uint64_t> last_ms_{0};
};

/// Statistics of one version of a model. A version that replaces it under the same number continues them.
class VersionStats {
 public:
  VersionStats() = default;
  ~VersionStats();
  VersionStats(const VersionStats&) = delete;
  VersionStats& operator=(const VersionStats&) = delete;

  /// Records the end of a request. `method`: its place in Methods(). `rows`: how many it had, if it was answered.
  void Record(int method, ChoiceReason reason, absl::StatusCode code, const RequestTiming& timing, int64_t rows = 1);
  void RecordShed(ShedReason reason) { shed_[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed); }

  /// Statistics of a method, by its place in Methods(); null if no request used it.
  const MethodStats* method(int method) const { return methods_[method].load(std::memory_order_acquire); }
  /// Statistics of the methods of a protocol, by its place in Protocols().
  std::vector<const MethodStats*> protocol(int protocol) const;
  const InferenceTotals& totals() const { return totals_; }
  ScoreCounts& scores() { return scores_; }
  const ScoreCounts& scores() const { return scores_; }
  const Histogram& queue() const { return queue_; }
  const Histogram& run() const { return run_; }
  uint64_t shed(int reason) const { return shed_[static_cast<size_t>(reason)].load(std::memory_order_relaxed); }
  uint64_t chosen(int reason) const { return chosen_[static_cast<size_t>(reason)].load(std::memory_order_relaxed); }

 private:
  MethodStats* Of(int method);

  // Each is made with the first request that uses it, because most versions get requests of one method only.
  std::array<std::atomic<MethodStats*>, kMaxMethods> methods_{};
  InferenceTotals totals_;
  Histogram queue_, run_;
  ScoreCounts scores_;
  std::array<std::atomic<uint64_t>, kShedReasons> shed_{};
  std::array<std::atomic<uint64_t>, kChoiceReasons> chosen_{};
};

/// All statistics of a host.
class HostStats {
 public:
  using Key = std::pair<std::string, int64_t>;  // model, version

  std::shared_ptr<VersionStats> Of(const std::string& model, int64_t version);
  /// Removes versions that are not in `keep`.
  void Keep(const std::vector<Key>& keep);

  /// Counts a request that reached no version, such as one that came while the host drained.
  void RecordUnrouted(int protocol, const absl::Status& status, bool draining);

  std::map<Key, std::shared_ptr<const VersionStats>> versions() const;
  const OutcomeCounts& unrouted(int protocol) const { return unrouted_[static_cast<size_t>(protocol)]; }
  uint64_t draining() const { return draining_.load(std::memory_order_relaxed); }

 private:
  mutable std::mutex mutex_;
  std::map<Key, std::shared_ptr<VersionStats>> versions_;
  std::array<OutcomeCounts, kMaxProtocols + 1> unrouted_;  // the last one is for unknown protocols
  std::atomic<uint64_t> draining_{0};
};

/// Returns a protocol's place in Protocols(); kMaxProtocols if it is unknown.
int ProtocolPlace(std::string_view protocol);

}  // namespace processor

#endif  // PROCESSOR_HOST_REQUESTS_HOST_STATS_H_
