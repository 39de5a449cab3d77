// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/tower_team.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <mutex>
#include <new>
#include <thread>
#include <vector>

#include "src/base/huge_memory.h"
#include "src/base/thread_number.h"

namespace processor {
namespace {

// A member that does not come is not waited for longer than a request may be late for it: less than reading the weights
// alone costs.
constexpr int64_t kWaitNs = 60'000;
// Another thread was here not longer ago than this: it may come again soon.
constexpr int64_t kRecentNs = 500'000;
constexpr int64_t kLongAgoNs = INT64_MIN / 2;
constexpr uint32_t kMostVisitsAlone = 512;
// Spins before the CPU is offered to others, since a member may be waiting for it.
constexpr int kSpins = 4000;
// A member that is so late after that has lost its CPU: computing alone takes less.
constexpr int64_t kLateNs = 1'000'000;

int64_t SteadyNowNs() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

void Pause() {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

thread_local bool kept_out = false;

// What SetUsableCpus() said last.
std::atomic<int> usable_cpus{0};

// The CPUs at one last-level cache that the process may use.
int UsableCpus() {
  cpu_set_t allowed;
  std::vector<int> cpus;
  if (sched_getaffinity(getpid(), sizeof allowed, &allowed) == 0) {
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
      if (CPU_ISSET(cpu, &allowed)) cpus.push_back(cpu);
    }
  }
  const int told = usable_cpus.load();
  // While the main thread is confined, the other threads may use as many CPUs as were told, of which it is not known which.
  if (told > 0 || cpus.empty()) {
    cpus.resize(told > 0 ? static_cast<size_t>(told) : std::thread::hardware_concurrency());
    for (size_t i = 0; i < cpus.size(); ++i) cpus[i] = static_cast<int>(i);
  }
  return CacheDomains::OfThisMachine().MostOf(cpus);
}

}  // namespace

class TowerTeams::Team {
 public:
  explicit Team(Domain* domain) : home(domain) {}

  Domain* const home;
  uint64_t kind = 0;
  int members = 0;
  int64_t rows = 0;
  uint32_t taken = 0;  // parts that have their member
  std::atomic<bool> closed{false};
  std::atomic<int> arrived{0};  // at all meetings so far
  std::atomic<int> left{0};
  std::atomic<bool> broken{false};
  HugeMemory memory;
};

// The teams of the threads at one cache. A cache line for each, so that threads of others do not wait.
class alignas(64) TowerTeams::Domain {
 public:
  std::mutex mutex;
  Team* open = nullptr;  // the team that waits for members

  // The mutex must be held for all of them. A team that paid makes the next requests wait for members; after one that did
  // not, several will not wait.
  void NoteVisit(uint64_t thread, int64_t now_ns);
  bool WorthWaiting(uint64_t thread, int64_t now_ns);
  Team* Take(int64_t floats);
  void Return(Team* team, bool paid);

 private:
  std::vector<std::unique_ptr<Team>> teams_;
  std::vector<Team*> idle_;
  // The thread that came last, its time, and the time of the last other thread.
  uint64_t last_thread_ = 0;
  int64_t last_ns_ = 0;
  int64_t other_ns_ = 0;
  uint32_t skip_ = 0;     // calls that will not wait
  uint32_t backoff_ = 1;  // calls that will not wait after the next team that does not pay
};

void TowerTeams::SetUsableCpus(int cpus) { usable_cpus = cpus; }

void TowerTeams::KeepThisThreadOut() { kept_out = true; }

TowerTeams::TowerTeams(int most, int64_t rows, const CacheDomains& caches, int (*current_cpu)())
    : most_(std::clamp(most, 1, kMostMembers)),
      rows_(rows),
      caches_(caches),
      current_cpu_(current_cpu),
      domains_(std::make_unique<Domain[]>(static_cast<size_t>(caches.count()))) {}

TowerTeams::~TowerTeams() = default;

int TowerTeams::MembersFor(size_t bytes) {
  const long cache = sysconf(_SC_LEVEL2_CACHE_SIZE);
  // Where it is not told, nothing is known to be gained.
  if (cache <= 0 || bytes <= static_cast<size_t>(cache) / 4 * 3) return 1;
  const auto wanted = static_cast<int>(std::min<size_t>((bytes + cache / 2) / cache, kMostMembers));
  return std::clamp(std::max(wanted, 2), 1, std::max(UsableCpus(), 1));
}

void TowerTeams::Domain::NoteVisit(uint64_t thread, int64_t now_ns) {
  if (last_thread_ != thread) {
    other_ns_ = last_thread_ == 0 ? kLongAgoNs : last_ns_;
    last_thread_ = thread;
  }
  last_ns_ = now_ns;
}

bool TowerTeams::Domain::WorthWaiting(uint64_t thread, int64_t now_ns) {
  const int64_t seen_ns = last_thread_ == 0 ? kLongAgoNs : last_thread_ == thread ? other_ns_ : last_ns_;
  if (now_ns - seen_ns > kRecentNs) return false;
  if (skip_ == 0) return true;
  --skip_;
  return false;
}

TowerTeams::Team* TowerTeams::Domain::Take(int64_t floats) {
  if (idle_.empty()) {
    // Before the team exists: giving it back must not need memory.
    idle_.reserve(teams_.size() + 1);
    teams_.push_back(std::make_unique<Team>(this));
    idle_.push_back(teams_.back().get());
  }
  Team* const team = idle_.back();
  const size_t bytes = static_cast<size_t>(floats) * sizeof(float);
  if (team->memory.size() < bytes) team->memory = HugeMemory(bytes);
  idle_.pop_back();
  team->members = 0;
  team->rows = 0;
  team->taken = 0;
  team->closed.store(false, std::memory_order_relaxed);
  team->arrived.store(0, std::memory_order_relaxed);
  team->left.store(0, std::memory_order_relaxed);
  team->broken.store(false, std::memory_order_relaxed);
  return team;
}

void TowerTeams::Domain::Return(Team* team, bool paid) {
  idle_.push_back(team);
  skip_ = paid ? 0 : backoff_;
  backoff_ = paid ? 1 : std::min(2 * backoff_, kMostVisitsAlone);
}

bool TowerTeams::Join(int64_t rows, uint64_t kind, int64_t floats, Seat* seat) {
  if (most_ == 1 || rows < 1 || rows > rows_ || kept_out) return false;
  const uint64_t thread = ThreadNumber() + 1;  // 0 is no thread
  // The part of the weights that this thread's core read last.
  thread_local int part = 0;
  Domain& domain = domains_[static_cast<size_t>(caches_.Of(current_cpu_()))];
  const int64_t now_ns = SteadyNowNs();
  Team* team = nullptr;
  bool opened = false;
  {
    std::lock_guard<std::mutex> lock(domain.mutex);
    if (domain.open != nullptr && domain.open->kind == kind) {
      team = domain.open;
    } else if (domain.open == nullptr && domain.WorthWaiting(thread, now_ns)) {
      try {
        team = domain.Take(floats);
      } catch (const std::bad_alloc&) {
        return false;
      }
      team->kind = kind;
      domain.open = team;
      opened = true;
    }
    domain.NoteVisit(thread, now_ns);
    if (team == nullptr) return false;
    seat->first_row_ = team->rows;
    team->rows += rows;
    ++team->members;
    if (part >= most_ || (team->taken >> part & 1) != 0) {
      for (part = 0; (team->taken >> part & 1) != 0;) ++part;
    }
    team->taken |= 1u << part;
    if (team->members == most_) {
      domain.open = nullptr;
      team->closed.store(true, std::memory_order_release);
    }
  }
  while (!team->closed.load(std::memory_order_acquire)) {
    Pause();
    // Whoever has waited long enough: the one that opened it may have lost its CPU.
    if (SteadyNowNs() - now_ns < kWaitNs) continue;
    std::lock_guard<std::mutex> lock(domain.mutex);
    if (team->closed.load(std::memory_order_relaxed)) break;
    domain.open = nullptr;
    team->closed.store(true, std::memory_order_release);
  }
  if (opened) {
    std::lock_guard<std::mutex> lock(domain.mutex);
    if (team->members == 1) {
      domain.Return(team, false);
      return false;
    }
  }
  seat->team_ = team;
  seat->team_rows_ = team->rows;
  seat->members_ = team->members;
  seat->rank_ = __builtin_popcount(team->taken & ((1u << part) - 1));
  return true;
}

TowerTeams::Seat::~Seat() {
  if (team_ == nullptr) return;
  if (!complete_) team_->broken.store(true);
  // The last one out gives the team back; no thread reads it any more.
  const int members = team_->members;
  if (team_->left.fetch_add(1, std::memory_order_acq_rel) + 1 < members) return;
  std::lock_guard<std::mutex> lock(team_->home->mutex);
  team_->home->Return(team_, !team_->broken.load());
}

bool TowerTeams::Seat::Sync() const {
  Team& team = *team_;
  const int all = members_ * ++syncs_;
  team.arrived.fetch_add(1);
  // If all have arrived everything is there, whatever became of the team since.
  int64_t give_up_ns = 0;
  for (int spins = 0; team.arrived.load(std::memory_order_acquire) < all; ++spins) {
    if (team.broken.load(std::memory_order_relaxed)) return team.arrived.load(std::memory_order_acquire) >= all;
    if (spins < kSpins) {
      Pause();
      continue;
    }
    const int64_t now_ns = SteadyNowNs();
    if (give_up_ns == 0) give_up_ns = now_ns + kLateNs;
    if (now_ns >= give_up_ns) {
      team.broken.store(true);
    } else {
      std::this_thread::yield();
    }
  }
  return true;
}

float* TowerTeams::Seat::memory() const { return reinterpret_cast<float*>(team_->memory.data()); }

}  // namespace processor
