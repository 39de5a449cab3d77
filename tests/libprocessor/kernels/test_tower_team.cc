// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/tower_team.h"

#include <time.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "simulated_caches.h"

namespace processor {
namespace {

constexpr uint64_t kKind = 1, kOtherKind = 2;

TEST(TowerTeam, LoneThreadNeverWaits) {
  TowerTeams teams(2, 4);
  for (int i = 0; i < 1000; ++i) {
    TowerTeams::Seat seat;
    EXPECT_FALSE(teams.Join(1, kKind, 16, &seat));
    EXPECT_TRUE(seat.alone());
    EXPECT_EQ(seat.begin(7), 0);
    EXPECT_EQ(seat.end(7), 7);
  }
}

TEST(TowerTeam, ManyRowsAndTeamsOfOneComputeAlone) {
  TowerTeams none(1, 4), two(2, 4);
  TowerTeams::Seat seat;
  EXPECT_FALSE(none.Join(1, kKind, 16, &seat));
  EXPECT_FALSE(two.Join(5, kKind, 16, &seat));
  EXPECT_FALSE(two.Join(0, kKind, 16, &seat));
}

TEST(TowerTeam, WeightsThatFitACacheNeedNoTeam) {
  EXPECT_EQ(TowerTeams::MembersFor(1024), 1);
  EXPECT_GE(TowerTeams::MembersFor(size_t{1} << 30), 1);
  EXPECT_LE(TowerTeams::MembersFor(size_t{1} << 40), TowerTeams::kMostMembers);
}

// Each thread writes its rows into the team's memory, all add up the rows of all, each a part of the columns; then each
// checks its own rows' sums against all rows that were there.
void Send(TowerTeams* teams, uint64_t kind, int requests, bool pauses, uint32_t seed, std::atomic<int>* met,
          std::atomic<int>* bad) {
  constexpr int kColumns = 13, kMostRows = 4 * TowerTeams::kMostMembers;
  for (int i = 0; i < requests; ++i) {
    seed = seed * 1664525u + 1013904223u;
    const int64_t rows = 1 + (seed >> 20) % 4;
    if (pauses && (seed >> 8) % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds((seed >> 12) % 64));
    TowerTeams::Seat seat;
    if (!teams->Join(rows, kind, kColumns * (kMostRows + 1), &seat)) continue;
    ++*met;
    float* cells = seat.memory();
    float* sums = cells + kColumns * kMostRows;
    for (int64_t row = 0; row < rows; ++row) {
      for (int column = 0; column < kColumns; ++column) {
        cells[(seat.first_row() + row) * kColumns + column] = static_cast<float>(column + 1);
      }
    }
    // A thread that has lost its CPU for long breaks its team up.
    if (!seat.Sync()) continue;
    for (int64_t column = seat.begin(kColumns); column < seat.end(kColumns); ++column) {
      sums[column] = 0;
      for (int64_t row = 0; row < seat.team_rows(); ++row) sums[column] += cells[row * kColumns + column];
    }
    if (!seat.Sync()) continue;
    seat.Complete();
    for (int column = 0; column < kColumns; ++column) {
      if (sums[column] != static_cast<float>((column + 1) * seat.team_rows())) ++*bad;
    }
  }
}

void Work(TowerTeams* teams, uint64_t kind, int requests, uint32_t seed, std::atomic<int>* met, std::atomic<int>* bad) {
  Send(teams, kind, requests, true, seed, met, bad);
}

// On a busy machine a thread that pauses hardly ever runs while another one does. Therefore rounds after the first one
// are longer and have no pauses.
void WorkInRound(TowerTeams* teams, int round, uint32_t seed, std::atomic<int>* met, std::atomic<int>* bad) {
  const bool pauses = round == 0;
  Send(teams, kKind, pauses ? 1000 : 100'000, pauses, seed, met, bad);
}

// Calls rounds of work until threads have met twice and, in the first two rounds, more often. Whether they meet is up
// to the scheduler; the deadline is for threads that never do.
void UntilTheyHaveMet(const std::atomic<int>& met, const std::function<void(int)>& work) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::minutes(2);
  for (int round = 0; met < 2 || (round < 2 && met < 20); ++round) {
    if (std::chrono::steady_clock::now() > deadline) break;
    work(round);
  }
  EXPECT_GE(met, 2);
}

class TowerTeamOfThreads : public testing::TestWithParam<std::pair<int, int>> {};

TEST_P(TowerTeamOfThreads, ShareTheirWork) {
  const auto [members, threads] = GetParam();
  TowerTeams teams(members, 4);
  std::atomic<int> met{0}, bad{0};
  UntilTheyHaveMet(met, [&, threads = threads](int round) {
    std::vector<std::thread> workers;
    for (int i = 0; i < threads; ++i) {
      workers.emplace_back(WorkInRound, &teams, round, static_cast<uint32_t>(round * threads + i), &met, &bad);
    }
    for (std::thread& worker : workers) worker.join();
  });
  EXPECT_EQ(bad, 0);
}

INSTANTIATE_TEST_SUITE_P(Sizes, TowerTeamOfThreads,
                         testing::Values(std::pair(2, 2), std::pair(2, 3), std::pair(3, 3), std::pair(8, 5)));

TEST(TowerTeam, KindsAreNotMixed) {
  TowerTeams teams(2, 4);
  std::atomic<int> met{0}, bad{0};
  std::thread one(Work, &teams, kKind, 5000, 1, &met, &bad), other(Work, &teams, kOtherKind, 5000, 2, &met, &bad);
  one.join();
  other.join();
  EXPECT_EQ(met, 0);
  EXPECT_EQ(bad, 0);
}

// What one thread does when it has met the other; false: it has not.
using Meeting = std::function<void(TowerTeams::Seat*)>;

// Has two threads meet, and each do something; answers how long the second one took, in seconds.
double Meet(TowerTeams* teams, const Meeting& first, const Meeting& second) {
  std::atomic<bool> met{false};
  std::atomic<double> seconds{0};
  const auto work = [&](const Meeting& meeting, bool timed) {
    while (!met) {
      TowerTeams::Seat seat;
      if (!teams->Join(1, kKind, 64, &seat)) continue;
      met = true;
      const auto began = std::chrono::steady_clock::now();
      try {
        meeting(&seat);
      } catch (const std::bad_alloc&) {
      }
      if (timed) seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    }
  };
  std::thread one(work, first, false), other(work, second, true);
  one.join();
  other.join();
  return seconds;
}

TEST(TowerTeam, FailingMemberReleasesTheOthers) {
  TowerTeams teams(2, 4);
  for (int i = 0; i < 3; ++i) {
    bool together = true;
    Meet(
        &teams, [](TowerTeams::Seat*) { throw std::bad_alloc(); },
        [&](TowerTeams::Seat* seat) { together = seat->Sync(); });
    EXPECT_FALSE(together);
  }
  // The next ones meet as before.
  bool together = false;
  const Meeting meeting = [](TowerTeams::Seat* seat) {
    if (seat->Sync()) seat->Complete();
  };
  for (int i = 0; i < 50 && !together; ++i) {
    Meet(&teams, meeting, [&](TowerTeams::Seat* seat) {
      together = seat->Sync();
      seat->Complete();
    });
  }
  EXPECT_TRUE(together);
}

TEST(TowerTeam, MemberThatFailsLaterReleasesTheOthers) {
  TowerTeams teams(2, 4);
  bool first = false, second = true;
  for (int i = 0; i < 50 && !first; ++i) {
    Meet(
        &teams,
        [](TowerTeams::Seat* seat) {
          seat->Sync();
          throw std::bad_alloc();
        },
        [&](TowerTeams::Seat* seat) {
          first = seat->Sync();
          second = seat->Sync();
        });
  }
  EXPECT_TRUE(first);
  EXPECT_FALSE(second);
}

TEST(TowerTeam, LateMemberIsLeftBehind) {
  TowerTeams teams(2, 4);
  double cpu_seconds = 1;
  const double seconds = Meet(
      &teams, [](TowerTeams::Seat*) { std::this_thread::sleep_for(std::chrono::milliseconds(500)); },
      [&](TowerTeams::Seat* seat) {
        timespec before, after;
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &before);
        EXPECT_FALSE(seat->Sync());
        clock_gettime(CLOCK_THREAD_CPUTIME_ID, &after);
        cpu_seconds = static_cast<double>(after.tv_sec - before.tv_sec) +
                      1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
      });
  EXPECT_LT(seconds, 0.3);
  EXPECT_LT(cpu_seconds, 0.003);
}

thread_local int simulated_cpu = 0;
int SimulatedCpu() { return simulated_cpu; }

TEST(TowerTeam, ThreadsAtDifferentCachesNeverMeet) {
  const CacheDomains caches(SixteenCaches());
  TowerTeams teams(8, 4, caches, SimulatedCpu);
  std::atomic<int> met{0}, bad{0};
  std::vector<std::thread> threads;
  for (int domain = 0; domain < 16; ++domain) {
    threads.emplace_back([&, domain] {
      simulated_cpu = 8 * domain + domain % 8;
      Work(&teams, kKind, 1000, static_cast<uint32_t>(domain), &met, &bad);
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(met, 0);
}

TEST(TowerTeam, ThreadsAtACacheMeetAtTheFirstTheLastAndThoseBetween) {
  const CacheDomains caches(SixteenCaches());
  TowerTeams teams(2, 4, caches, SimulatedCpu);
  for (int domain : {0, 1, 8, 15}) {
    SCOPED_TRACE(domain);
    std::atomic<int> met{0}, bad{0};
    UntilTheyHaveMet(met, [&](int round) {
      std::vector<std::thread> pair;
      for (int i = 0; i < 2; ++i) {
        pair.emplace_back([&, i] {
          simulated_cpu = 8 * domain + 4 * i;
          WorkInRound(&teams, round, static_cast<uint32_t>(2 * round + i), &met, &bad);
        });
      }
      for (std::thread& thread : pair) thread.join();
    });
    EXPECT_EQ(bad, 0);
  }
}

TEST(TowerTeam, RequestsWithoutMemoryForATeamComputeAlone) {
  TowerTeams teams(2, 4);
  std::atomic<int> met{0}, threads_done{0};
  const auto work = [&] {
    for (int i = 0; i < 20000; ++i) {
      TowerTeams::Seat seat;
      if (teams.Join(1, kKind, int64_t{1} << 52, &seat)) ++met;
    }
    ++threads_done;
  };
  std::thread one(work), other(work);
  one.join();
  other.join();
  EXPECT_EQ(met, 0);
  EXPECT_EQ(threads_done, 2);
}

TEST(TowerTeam, ExcludedThreadComputesAlone) {
  TowerTeams teams(2, 4);
  std::atomic<int> met{0}, bad{0};
  std::thread kept_out([&] {
    TowerTeams::KeepThisThreadOut();
    Work(&teams, kKind, 5000, 1, &met, &bad);
  });
  std::thread other(Work, &teams, kKind, 5000, 2, &met, &bad);
  kept_out.join();
  other.join();
  EXPECT_EQ(met, 0);
}

}  // namespace
}  // namespace processor
