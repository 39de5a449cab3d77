// SPDX-License-Identifier: Apache-2.0
// The slots of a model, which owns them: one for each of its sessions. Chooses the session that a request runs in, and
// moves the sessions to CPUs.
#ifndef PROCESSOR_RUNTIME_SESSION_SESSION_SLOTS_H_
#define PROCESSOR_RUNTIME_SESSION_SESSION_SLOTS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "src/runtime/config/model_config.h"
#include "src/runtime/session/session_slot.h"
#include "src/runtime/threads/cpuset.h"

namespace processor {

/// Every function may be called from any thread.
class SessionSlots {
 public:
  /// The configuration is borrowed.
  explicit SessionSlots(const ModelConfig& config);

  SessionSlot& operator[](int session) const { return *slots_[static_cast<size_t>(session)]; }
  int size() const { return static_cast<int>(slots_.size()); }
  auto begin() const { return slots_.begin(); }
  auto end() const { return slots_.end(); }

  /// Chooses the session of the next request by `select_session_policy`.
  int Pick();
  /// The number of requests that wait for a session.
  size_t queued() const;
  /// The largest number of asynchronous requests that run at a time on CPUs that are not the sessions' own.
  int RequestsAtOnce() const;

  /// Moves the sessions to CPUs, written as in the key `cpusets`; "" moves all of them to all CPUs.
  absl::Status SetCpuset(std::string_view cpuset);
  /// The CPUs of all sessions together; empty if a session was never given CPUs.
  CpuSet Cpus() const;
  /// The CPUs of each session, as in "0-3"; "" for one that was never given CPUs.
  std::vector<std::string> Cpusets() const;

  /// Fails all waiting requests and refuses later ones. Running ones continue.
  void Refuse(const absl::Status& status);
  /// Waits for running requests and ends the threads. After Refuse().
  void Stop();

 private:
  const ModelConfig& config_;
  std::vector<std::unique_ptr<SessionSlot>> slots_;
  std::atomic<uint64_t> next_{0};
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_SESSION_SESSION_SLOTS_H_
