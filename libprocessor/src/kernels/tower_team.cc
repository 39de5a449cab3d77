// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/tower_team.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

namespace processor {
namespace {

// A member that does not come is not waited for longer than a request may be late for it: less than reading the weights
// alone costs.
constexpr int64_t kWaitNs = 60'000;
// Another thread was here not longer ago than this: it may come again soon.
constexpr int64_t kRecentNs = 500'000;
constexpr int64_t kLongAgoNs = INT64_MIN / 2;
constexpr uint32_t kMostVisitsAlone = 512;
// Spins before the CPU is offered to others, since a member may be waiting for it, and how often it is offered before the
// thread sleeps.
constexpr int kSpins = 4000, kYields = 20;
// A member that is so late has lost its CPU: computing alone takes less.
constexpr int64_t kGiveUpNs = 5'000'000;

int64_t SteadyNowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

uint64_t ThisThread() {
  static std::atomic<uint64_t> next{1};
  thread_local const uint64_t number = next.fetch_add(1, std::memory_order_relaxed);
  return number;
}

thread_local bool kept_out = false;

// What SetUsableCpus() said last.
std::atomic<int> usable_cpus{0};

int UsableCpus() {
  if (const int told = usable_cpus.load(); told > 0) return told;
  cpu_set_t allowed;
  if (sched_getaffinity(getpid(), sizeof allowed, &allowed) == 0) return CPU_COUNT(&allowed);
  return static_cast<int>(std::thread::hardware_concurrency());
}

}  // namespace

class TowerTeams::Team {
 public:
  uint64_t kind = 0;
  int members = 0;
  int64_t rows = 0;
  uint32_t taken = 0;  // parts that have their member
  std::atomic<bool> closed{false};
  std::atomic<int> arrived{0};  // at all meetings so far
  std::atomic<int> left{0};
  std::atomic<int> sleeping{0};  // until another thread has arrived
  std::atomic<bool> broken{false};
  HugeMemory memory;

  void Wake() {
    if (sleeping.load() > 0) syscall(SYS_futex, &arrived, FUTEX_WAKE_PRIVATE, kMostMembers, nullptr, nullptr, 0);
  }
  // While `seen` have arrived, for so long at most.
  void Sleep(int seen, int64_t ns) {
    const timespec time = {static_cast<time_t>(ns / 1'000'000'000), static_cast<long>(ns % 1'000'000'000)};
    sleeping.fetch_add(1);
    if (!broken.load()) syscall(SYS_futex, &arrived, FUTEX_WAIT_PRIVATE, seen, &time, nullptr, 0);
    sleeping.fetch_sub(1);
  }
  void Break() {
    broken.store(true);
    Wake();
  }
};

void TowerTeams::SetUsableCpus(int cpus) { usable_cpus = cpus; }

void TowerTeams::KeepThisThreadOut() { kept_out = true; }

TowerTeams::TowerTeams(int most, int64_t rows) : most_(std::clamp(most, 1, kMostMembers)), rows_(rows) {}

TowerTeams::~TowerTeams() = default;

int TowerTeams::MembersFor(size_t bytes) {
  const long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
  // Where it is not told, nothing is known to be gained.
  if (cache <= 0 || bytes <= static_cast<size_t>(cache) / 4 * 3) return 1;
  const auto wanted = static_cast<int>(std::min<size_t>((bytes + cache / 2) / cache, kMostMembers));
  return std::clamp(std::max(wanted, 2), 1, std::max(UsableCpus(), 1));
}

void TowerTeams::NoteVisit(uint64_t thread, int64_t now_ns) {
  if (last_thread_ != thread) {
    other_ns_ = last_thread_ == 0 ? kLongAgoNs : last_ns_;
    last_thread_ = thread;
  }
  last_ns_ = now_ns;
}

bool TowerTeams::WorthWaiting(uint64_t thread, int64_t now_ns) {
  const int64_t seen_ns = last_thread_ == 0 ? kLongAgoNs : last_thread_ == thread ? other_ns_ : last_ns_;
  if (now_ns - seen_ns > kRecentNs) return false;
  if (skip_ == 0) return true;
  --skip_;
  return false;
}

TowerTeams::Team* TowerTeams::TakeTeam(int64_t floats) {
  Team* team = nullptr;
  if (idle_.empty()) {
    teams_.push_back(std::make_unique<Team>());
    idle_.reserve(teams_.size());
    team = teams_.back().get();
  } else {
    team = idle_.back();
    idle_.pop_back();
  }
  const size_t bytes = static_cast<size_t>(floats) * sizeof(float);
  try {
    if (team->memory.size() < bytes) team->memory = HugeMemory(bytes);
  } catch (...) {
    idle_.push_back(team);
    throw;
  }
  team->members = 0;
  team->rows = 0;
  team->taken = 0;
  team->closed.store(false, std::memory_order_relaxed);
  team->arrived.store(0, std::memory_order_relaxed);
  team->left.store(0, std::memory_order_relaxed);
  team->broken.store(false, std::memory_order_relaxed);
  return team;
}

void TowerTeams::Leave(Team* team) {
  // The last one out gives the team back; no thread reads it any more.
  const int members = team->members;
  if (team->left.fetch_add(1, std::memory_order_acq_rel) + 1 < members) return;
  std::lock_guard<std::mutex> lock(mutex_);
  idle_.push_back(team);
}

bool TowerTeams::Join(int64_t rows, uint64_t kind, int64_t floats, Seat* seat) {
  if (most_ == 1 || rows < 1 || rows > rows_ || kept_out) return false;
  const uint64_t thread = ThisThread();
  // The part of the weights that this thread's core read last.
  thread_local int part = 0;
  const int64_t now_ns = SteadyNowNs();
  Team* team = nullptr;
  bool opened = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (open_ != nullptr && open_->kind == kind) {
      team = open_;
    } else if (open_ == nullptr && WorthWaiting(thread, now_ns)) {
      team = TakeTeam(floats);
      team->kind = kind;
      open_ = team;
      opened = true;
    }
    NoteVisit(thread, now_ns);
    if (team == nullptr) return false;
    seat->first_row_ = team->rows;
    team->rows += rows;
    ++team->members;
    if (part >= most_ || (team->taken >> part & 1) != 0) {
      for (part = 0; (team->taken >> part & 1) != 0;) ++part;
    }
    team->taken |= 1u << part;
    if (team->members == most_) {
      open_ = nullptr;
      team->closed.store(true, std::memory_order_release);
    }
  }
  while (!team->closed.load(std::memory_order_acquire)) {
    Pause();
    // Whoever has waited long enough: the one that opened it may have lost its CPU.
    if (SteadyNowNs() - now_ns < kWaitNs) continue;
    std::lock_guard<std::mutex> lock(mutex_);
    if (team->closed.load(std::memory_order_relaxed)) break;
    open_ = nullptr;
    team->closed.store(true, std::memory_order_release);
  }
  if (opened) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (team->members == 1) {
      idle_.push_back(team);
      skip_ = backoff_;
      backoff_ = std::min(2 * backoff_, kMostVisitsAlone);
      return false;
    }
    skip_ = 0;
    backoff_ = 1;
  }
  seat->owner_ = this;
  seat->team_ = team;
  seat->team_rows_ = team->rows;
  seat->members_ = team->members;
  seat->rank_ = __builtin_popcount(team->taken & ((1u << part) - 1));
  return true;
}

TowerTeams::Seat::~Seat() {
  if (team_ == nullptr) return;
  if (!complete_) team_->Break();
  owner_->Leave(team_);
}

bool TowerTeams::Seat::Sync() const {
  Team& team = *team_;
  const int all = members_ * ++syncs_;
  int arrived = team.arrived.fetch_add(1) + 1;
  if (arrived == all) {
    team.Wake();
    return true;
  }
  // If all have arrived everything is there, whatever became of the team since.
  int64_t give_up_ns = 0;
  for (int spins = 0; (arrived = team.arrived.load(std::memory_order_acquire)) < all; ++spins) {
    if (team.broken.load(std::memory_order_relaxed)) return team.arrived.load(std::memory_order_acquire) >= all;
    if (spins < kSpins) {
      Pause();
      continue;
    }
    const int64_t now_ns = SteadyNowNs();
    if (give_up_ns == 0) give_up_ns = now_ns + kGiveUpNs;
    if (now_ns >= give_up_ns) {
      team.Break();
    } else if (spins < kSpins + kYields) {
      std::this_thread::yield();
    } else {
      team.Sleep(arrived, give_up_ns - now_ns);
    }
  }
  return true;
}

float* TowerTeams::Seat::memory() const { return reinterpret_cast<float*>(team_->memory.data()); }

}  // namespace processor
