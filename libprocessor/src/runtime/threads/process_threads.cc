// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/threads/process_threads.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/kernels/tower_team.h"
#include "src/runtime/requests/exception_status.h"
#include "src/runtime/threads/thread_slice.h"

namespace processor {
namespace {

constexpr int kMostPasses = 8;
// The time slice of threads that share CPUs with sessions: they work for tens of microseconds, and sessions for
// milliseconds.
constexpr int64_t kShortSliceNs = 100'000;

// CPUs where MoveThreads() has moved the threads, or where they were before. Never freed: there are few, and threads may
// read them at any time.
struct Place {
  CpuMask cpus;
  int64_t slice_ns;
  const Place* older;
};
std::atomic<const Place*> newest_place{nullptr};   // of all, each once
std::atomic<const Place*> current_place{nullptr};  // null before the first move

const Place* FindPlace(const CpuMask& cpus) {
  const Place* place = newest_place.load(std::memory_order_acquire);
  while (place != nullptr && !(place->cpus == cpus)) place = place->older;
  return place;
}

class KeptThread;

struct Kept {
  std::mutex mutex;
  KeptThread* first = nullptr;
};

// Never freed, because threads may end while the process exits.
Kept& GetKept() {
  static Kept* const kept = new Kept;
  return *kept;
}

// An entry of a list that allocates nothing, because a starting thread could not report that memory was short.
class KeptThread {
 public:
  KeptThread() : id_(ThreadId()) {
    std::lock_guard<std::mutex> lock(GetKept().mutex);
    next_ = GetKept().first;
    if (next_ != nullptr) next_->before_ = this;
    GetKept().first = this;
    SetSlice(id_, 0);
    // The thread that started this one may have been moved, or this thread itself before it was listed. Its CPUs are a
    // hint: if memory is short, it stays where it is.
    (void)Attempt([this] {
      const CpuMove move = CurrentMove();
      if (!move.to.empty() && CpusOfThread(id_) == move.to) PinThread(id_, move.from);
      return absl::OkStatus();
    });
  }
  ~KeptThread() {
    std::lock_guard<std::mutex> lock(GetKept().mutex);
    (before_ == nullptr ? GetKept().first : before_->next_) = next_;
    if (next_ != nullptr) next_->before_ = before_;
  }

  int id() const { return id_; }
  const KeptThread* next() const { return next_; }

 private:
  const int id_;
  KeptThread* before_ = nullptr;
  KeptThread* next_ = nullptr;
};

// Called with the mutex of `kept` held.
bool IsKept(const Kept& kept, int thread) {
  for (const KeptThread* entry = kept.first; entry != nullptr; entry = entry->next()) {
    if (entry->id() == thread) return true;
  }
  return false;
}

// Returns whether a thread belongs to the front end. A thread with a lower priority or with its own CPUs works in the
// background: TensorFlow reads tables on threads that a load has started.
bool IsOfProcess(int thread, const CpuMove& move) {
  const int main = static_cast<int>(getpid());
  if (thread == main) return true;
  if (sched_getscheduler(thread) != sched_getscheduler(main)) return false;
  if (getpriority(PRIO_PROCESS, static_cast<id_t>(thread)) > getpriority(PRIO_PROCESS, static_cast<id_t>(main))) {
    return false;
  }
  const CpuSet cpus = CpusOfThread(thread);
  return cpus == move.from || cpus == move.to;
}

// Called with the mutex of `kept` held, or a thread could be listed between this and its move.
std::vector<int> ListThreads(const Kept& kept, const CpuMove& move) {
  std::vector<int> found;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc/self/task", error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename();
    int id = 0;
    std::from_chars(name.data(), name.data() + name.size(), id);
    if (id > 0 && !IsKept(kept, id) && IsOfProcess(id, move)) found.push_back(id);
  }
  return found;
}

// Called with the mutex of GetKept() held.
const Place* AddPlace(const CpuSet& cpus, int64_t slice_ns) {
  const CpuMask mask(cpus);
  if (const Place* found = FindPlace(mask); found != nullptr) return found;
  const auto* const place = new Place{mask, slice_ns, newest_place.load(std::memory_order_relaxed)};
  newest_place.store(place, std::memory_order_release);
  return place;
}

// Returns the CPUs where threads of the process may be.
CpuMove PlacesOfThreads() {
  CpuMove move = CurrentMove();
  if (move.to.empty()) move.from = move.to = AllowedCpus();
  return move;
}

}  // namespace

void KeepThreadInPlace() { thread_local const KeptThread kept; }

void MoveThreads(const CpuSet& cpus) {
  const int main = static_cast<int>(getpid());
  std::lock_guard<std::mutex> lock(GetKept().mutex);
  const CpuMove before = PlacesOfThreads();
  const int64_t slice_ns = cpus == before.from ? 0 : kShortSliceNs;
  AddPlace(before.from, /*slice_ns=*/0);
  current_place.store(AddPlace(cpus, slice_ns), std::memory_order_release);
  PinMainThread(cpus);
  SetSlice(main, slice_ns);
  TowerTeams::SetUsableCpus(cpus == before.from ? 0 : static_cast<int>(before.from.size()));
  // Threads may start others meanwhile, so several passes are made.
  bool moved = true;
  for (int pass = 0; moved && pass < kMostPasses; ++pass) {
    moved = false;
    for (int thread : ListThreads(GetKept(), before)) {
      if (thread == main || CpusOfThread(thread) == cpus) continue;
      PinThread(thread, cpus);
      SetSlice(thread, slice_ns);
      moved = true;
    }
  }
}

void ReturnToProcess(const CpuMask& own) noexcept {
  const Place* const place = current_place.load(std::memory_order_acquire);
  if (place == nullptr || place->cpus == own || FindPlace(own) == nullptr) return own.PinCaller();
  place->cpus.PinCaller();
  SetSlice(0, place->slice_ns);
}

std::map<int, ThreadTime> TimeOfThreads() {
  std::map<int, ThreadTime> times;
  std::lock_guard<std::mutex> lock(GetKept().mutex);
  for (int thread : ListThreads(GetKept(), PlacesOfThreads())) {
    std::ifstream file(absl::StrCat("/proc/self/task/", thread, "/schedstat"));
    ThreadTime time;
    // If the kernel does not count, all values are 0.
    if (file >> time.ran_ns >> time.waited_ns && time.ran_ns > 0) times[thread] = time;
  }
  return times;
}

}  // namespace processor
