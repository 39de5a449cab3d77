// SPDX-License-Identifier: Apache-2.0
// A batcher over requests that are only counted, for its tests.
#ifndef PROCESSOR_TESTS_RUNTIME_BATCHER_FIXTURE_H_
#define PROCESSOR_TESTS_RUNTIME_BATCHER_FIXTURE_H_

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "src/runtime/batching/batcher.h"
#include "src/runtime/session/session_slot.h"
#include "src/runtime/threads/cpu_mask.h"

namespace processor {

/// Counts how it ended; exactly one of the three must be 1.
class FakeEntry : public BatchEntry {
 public:
  explicit FakeEntry(uint64_t number, int64_t wanted_rows = 1, uint64_t wanted_kind = 7)
      : rows_(wanted_rows), kind_(wanted_kind) {
    id = number;
  }
  absl::Status Prepare() noexcept override {
    ++prepared;
    rows = rows_;
    kind = kind_;
    return prepare_status;
  }
  void Ran() noexcept override {
    while (hold_return) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ++told;
  }
  void Fail(const absl::Status& status) noexcept override {
    failure = status;
    ++fails;
  }

  absl::Status prepare_status, failure;
  std::atomic<int> prepared{0}, runs{0}, told{0}, fails{0};
  std::atomic<bool> hold_return{false};  // Ran() waits

 private:
  const int64_t rows_;
  const uint64_t kind_;
};

template <typename Condition>
bool Eventually(Condition condition) {
  for (int i = 0; i < 5000; ++i) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

/// A batcher whose runs can be held up, and which remembers what was run together.
class BatcherTest : public ::testing::Test {
 protected:
  void Begin(BatchOptions options, int sessions = 1, size_t max_waiting = 1000, bool by_cpu = false) {
    Batcher::Setup setup;
    setup.sessions = sessions;
    setup.max_waiting = max_waiting;
    setup.by_cpu = by_cpu;
    setup.run = [this](int session, BatchEntry* first) { RunChain(session, first); };
    setup.call_worker = [this](int session) {
      if (no_workers_) return absl::ResourceExhaustedError("no thread to be had");
      return slots_[session]->Serve(tasks_[session]);
    };
    batcher_ = std::make_unique<Batcher>(std::move(setup));
    batcher_->SetOptions(options);
    for (int i = 0; i < sessions; ++i) {
      SessionSlot::Options slot;
      slot.name = "batcher";
      slot.index = i;
      slots_.push_back(std::make_unique<SessionSlot>(slot));
      tasks_.push_back(std::make_shared<ServeTask>(batcher_.get(), i));
    }
  }

  void TearDown() override {
    Release();
    for (std::thread& thread : callers_) thread.join();
    if (batcher_ != nullptr) batcher_->Stop(absl::CancelledError("end"));
    for (auto& slot : slots_) {
      slot->Refuse(absl::CancelledError("end"));
      slot->Stop();
    }
  }

  // Runs wait inside from now on, until Release().
  void Hold() { held_ = true; }
  void Release() {
    std::lock_guard<std::mutex> lock(mutex_);
    held_ = false;
    wake_.notify_all();
  }
  bool Inside(int count) {
    return Eventually([&] { return inside_ >= count; });
  }
  bool Waiting(size_t count) {
    return Eventually([&] { return batcher_->waiting() == count; });
  }

  // Later calls come from this CPU.
  void CallFrom(int cpu) { call_from_ = CpuMask({cpu}); }

  // A thread that calls Run(). The status is written when it returns.
  struct Call {
    std::unique_ptr<FakeEntry> entry;
    absl::Status status;
    std::atomic<bool> ended{false};
  };
  Call* CallWith(std::unique_ptr<FakeEntry> entry) {
    calls_.push_back(std::make_unique<Call>());
    Call* const call = calls_.back().get();
    call->entry = std::move(entry);
    callers_.emplace_back([this, call, cpu = call_from_] {
      cpu.PinCaller();
      call->status = batcher_->Run(*call->entry, 0);
      call->ended = true;
    });
    return call;
  }
  Call* CallOne(uint64_t id, int64_t rows = 1, uint64_t kind = 7) {
    return CallWith(std::make_unique<FakeEntry>(id, rows, kind));
  }
  bool Ended(const std::vector<Call*>& calls) {
    return Eventually([&] { return std::all_of(calls.begin(), calls.end(), [](Call* c) { return c->ended.load(); }); });
  }

  // Entries that outlive the batcher, whatever a test expects in vain.
  FakeEntry* Make(uint64_t id, int64_t rows = 1, uint64_t kind = 7) {
    entries_.push_back(std::make_unique<FakeEntry>(id, rows, kind));
    return entries_.back().get();
  }

  std::vector<std::vector<uint64_t>> chains() {
    std::lock_guard<std::mutex> lock(mutex_);
    return chains_;
  }

  static BatchOptions ZeroWait(int64_t max_rows = 256) { return {BatchMode::kZeroWait, max_rows, 1000}; }
  static BatchOptions Timed(int64_t max_rows, int64_t max_wait_us) {
    return {BatchMode::kTimed, max_rows, max_wait_us};
  }

  std::unique_ptr<Batcher> batcher_;
  std::atomic<bool> no_workers_{false};

 private:
  class ServeTask : public Task {
   public:
    ServeTask(Batcher* batcher, int session) : batcher_(batcher), session_(session) {}
    void Run(int session) noexcept override { batcher_->Serve(session); }
    void Fail(const absl::Status&) noexcept override { batcher_->ReturnPlace(session_); }

   private:
    Batcher* const batcher_;
    const int session_;
  };

  void RunChain(int, BatchEntry* first) {
    std::unique_lock<std::mutex> lock(mutex_);
    std::vector<uint64_t> ids;
    for (BatchEntry* entry = first; entry != nullptr; entry = entry->next()) {
      ids.push_back(entry->id);
      ++static_cast<FakeEntry*>(entry)->runs;
    }
    chains_.push_back(std::move(ids));
    ++inside_;
    wake_.wait(lock, [this] { return !held_; });
    --inside_;
  }

  std::mutex mutex_;
  std::condition_variable wake_;
  std::atomic<bool> held_{false};
  std::atomic<int> inside_{0};
  std::vector<std::vector<uint64_t>> chains_;
  std::vector<std::unique_ptr<SessionSlot>> slots_;
  std::vector<std::shared_ptr<Task>> tasks_;
  std::vector<std::unique_ptr<Call>> calls_;
  std::vector<std::unique_ptr<FakeEntry>> entries_;
  std::vector<std::thread> callers_;
  CpuMask call_from_;
};

}  // namespace processor

#endif  // PROCESSOR_TESTS_RUNTIME_BATCHER_FIXTURE_H_
