// SPDX-License-Identifier: Apache-2.0
#include "src/host/control/front_end.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/log.h"
#include "src/runtime/requests/exception_status.h"
#include "src/runtime/stats/stats.h"
#include "src/runtime/threads/process_threads.h"

namespace processor {
namespace {

// The share of the remaining CPUs that the front end may use, and the share below which it is moved there: on all CPUs
// its threads use more time, because they migrate.
constexpr double kMost = 0.7, kLittle = 0.5;
// A thread that hardly ever sleeps has too little CPU time, however little it gets beside busy sessions.
constexpr double kSleepless = 0.8;
// How long threads stay on all CPUs, so that they do not move back and forth.
constexpr int64_t kPauseNs = 30 * kSecondNs;

CpuSet Without(const CpuSet& cpus, const CpuSet& taken) {
  CpuSet left;
  std::set_difference(cpus.begin(), cpus.end(), taken.begin(), taken.end(), std::back_inserter(left));
  return left;
}

}  // namespace

FrontEnd::~FrontEnd() {
  if (cpus_.empty()) return;
  const absl::Status status = Attempt([this] { return Move({}), absl::OkStatus(); });
  if (!status.ok()) Log(Severity::kError, status.message());
}

bool FrontEnd::KeepOff(bool kept, const Use& use, size_t left) {
  return use.busiest < kSleepless && use.cores <= (kept ? kMost : kLittle) * static_cast<double>(left);
}

void FrontEnd::Place(const CpuSet& reserved, int64_t now_ns) {
  if (!owned_ || now_ns - looked_ns_ < kSecondNs) return;
  const Use use = Look(now_ns);
  CpuSet left = Without(AllowedCpus(), reserved);
  if (reserved.empty() || left.empty() || times_.empty()) {
    if (!cpus_.empty()) Move({});
    return;
  }
  if (!KeepOff(!cpus_.empty(), use, left.size())) {
    if (cpus_.empty()) return;
    Log(Severity::kInfo, absl::StrCat("requests are read and answered on all CPUs: that takes ", use.cores, " of the ",
                                      left.size(), " that baselines leave"));
    not_before_ns_ = now_ns + kPauseNs;
    return Move({});
  }
  // Moved each time, because threads may have been started meanwhile.
  if (!cpus_.empty() || now_ns >= not_before_ns_) Move(std::move(left));
}

FrontEnd::Use FrontEnd::Look(int64_t now_ns) {
  std::map<int, ThreadTime> times = TimeOfThreads();
  const auto elapsed = static_cast<double>(now_ns - looked_ns_);
  Use use;
  for (const auto& [thread, now] : times) {
    const auto found = times_.find(thread);
    // A thread that has started since is measured next time.
    if (found == times_.end()) continue;
    const auto ran = static_cast<double>(now.ran_ns - found->second.ran_ns);
    const auto waited = static_cast<double>(now.waited_ns - found->second.waited_ns);
    use.cores += ran / elapsed;
    use.busiest = std::max(use.busiest, (ran + waited) / elapsed);
  }
  times_ = std::move(times);
  looked_ns_ = now_ns;
  return use;
}

void FrontEnd::Move(const CpuSet& cpus) {
  MoveThreads(cpus.empty() ? AllowedCpus() : cpus);
  cpus_ = cpus;
}

}  // namespace processor
