// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/session/session_slots.h"

#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/runtime/threads/request_threads.h"

namespace processor {

SessionSlots::SessionSlots(const ModelConfig& config) : config_(config) {
  const auto share = std::make_shared<RequestThreads::Share>();
  for (int session = 0; session < config.session_num; ++session) {
    SessionSlot::Options options;
    options.shared = &RequestThreads::OfProcess();
    options.share = share;
    options.name = absl::StrCat("session-", session);
    options.index = session;
    options.intra_op_threads = config.intra_op_parallelism_threads;
    options.inter_op_threads = config.inter_op_parallelism_threads;
    options.worker_threads = config.worker_threads;
    options.max_queue_size = config.max_queue_size;
    // Threads that wait for a batch to fill leave their CPU to others.
    options.one_task_per_cpu = config.batching.mode == BatchMode::kOff;
    if (!config.cpusets.empty()) options.cpus = config.cpusets[static_cast<size_t>(session)];
    slots_.push_back(std::make_unique<SessionSlot>(std::move(options)));
  }
}

int SessionSlots::Pick() {
  const int n = size();
  if (n == 1) return 0;
  const auto load = [this](int session) { return (*this)[session].load().load(std::memory_order_relaxed); };
  switch (config_.select_session_policy) {
    case SelectPolicy::kMod: {
      static std::atomic<unsigned> threads{0};
      thread_local const unsigned number = threads.fetch_add(1, std::memory_order_relaxed);
      return static_cast<int>(number % n);
    }
    case SelectPolicy::kRoundRobin: {
      // In turn, but busy sessions are skipped while another is idle.
      const int first = static_cast<int>(next_.fetch_add(1, std::memory_order_relaxed) % n);
      for (int i = 0; i < n; ++i) {
        const int candidate = (first + i) % n;
        if (load(candidate) > 0) continue;
        if (i > 0) next_.fetch_add(static_cast<uint64_t>(i), std::memory_order_relaxed);
        return candidate;
      }
      return first;
    }
    case SelectPolicy::kLeastLoaded: {
      // The search begins at another session each time, so that equally loaded sessions take turns.
      const int first = static_cast<int>(next_.fetch_add(1, std::memory_order_relaxed) % n);
      int best = first;
      for (int i = 1; i < n; ++i) {
        const int candidate = (first + i) % n;
        if (load(candidate) < load(best)) best = candidate;
      }
      return best;
    }
  }
  return 0;
}

size_t SessionSlots::queued() const {
  size_t queued = 0;
  for (const auto& slot : slots_) queued += slot->queued();
  return queued;
}

int SessionSlots::RequestsAtOnce() const {
  if (config_.worker_threads > 0) return config_.session_num * config_.worker_threads;
  return static_cast<int>(RequestThreads::OfProcess().at_once());
}

absl::Status SessionSlots::SetCpuset(std::string_view cpuset) {
  const CpuSet allowed = AllowedCpus();
  std::vector<CpuSet> groups(slots_.size(), allowed);
  if (!cpuset.empty()) {
    if (absl::Status s = ParseCpusets(cpuset, size(), allowed, &groups); !s.ok()) return s;
  }
  for (size_t session = 0; session < slots_.size(); ++session) slots_[session]->SetCpus(groups[session]);
  return absl::OkStatus();
}

CpuSet SessionSlots::Cpus() const {
  std::set<int> all;
  for (const auto& slot : slots_) {
    const CpuSet cpus = slot->cpus();
    if (cpus.empty()) return {};
    all.insert(cpus.begin(), cpus.end());
  }
  return CpuSet(all.begin(), all.end());
}

std::vector<std::string> SessionSlots::Cpusets() const {
  std::vector<std::string> cpusets;
  for (const auto& slot : slots_) cpusets.push_back(FormatCpuset(slot->cpus()));
  return cpusets;
}

void SessionSlots::Refuse(const absl::Status& status) {
  for (const auto& slot : slots_) slot->Refuse(status);
}

void SessionSlots::Stop() {
  for (const auto& slot : slots_) slot->Stop();
}

}  // namespace processor
