// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/tower_team.h"

#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace processor {
namespace {

constexpr uint64_t kKind = 1, kOtherKind = 2;

TEST(TowerTeam, ThreadThatIsAloneNeverWaits) {
  TowerTeams teams(2, 4);
  for (int i = 0; i < 1000; ++i) {
    TowerTeams::Seat seat;
    EXPECT_FALSE(teams.Join(1, kKind, 16, &seat));
    EXPECT_TRUE(seat.alone());
    EXPECT_EQ(seat.begin(7), 0);
    EXPECT_EQ(seat.end(7), 7);
  }
}

TEST(TowerTeam, ManyRowsAndTeamsOfOneGoAlone) {
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
void Work(TowerTeams* teams, uint64_t kind, int requests, uint32_t seed, std::atomic<int>* met, std::atomic<int>* bad) {
  constexpr int kColumns = 13, kMostRows = 4 * TowerTeams::kMostMembers;
  for (int i = 0; i < requests; ++i) {
    seed = seed * 1664525u + 1013904223u;
    const int64_t rows = 1 + (seed >> 20) % 4;
    if ((seed >> 8) % 16 == 0) std::this_thread::sleep_for(std::chrono::microseconds((seed >> 12) % 64));
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
    seat.Sync();
    for (int64_t column = seat.begin(kColumns); column < seat.end(kColumns); ++column) {
      sums[column] = 0;
      for (int64_t row = 0; row < seat.team_rows(); ++row) sums[column] += cells[row * kColumns + column];
    }
    seat.Sync();
    for (int column = 0; column < kColumns; ++column) {
      if (sums[column] != static_cast<float>((column + 1) * seat.team_rows())) ++*bad;
    }
  }
}

class TowerTeamOfThreads : public testing::TestWithParam<std::pair<int, int>> {};

TEST_P(TowerTeamOfThreads, ShareTheirWork) {
  const auto [members, threads] = GetParam();
  TowerTeams teams(members, 4);
  std::atomic<int> met{0}, bad{0};
  // Whether threads meet is up to the scheduler: again until they have.
  for (int round = 0; round < 50 && met < 20; ++round) {
    std::vector<std::thread> workers;
    for (int i = 0; i < threads; ++i) {
      workers.emplace_back(Work, &teams, kKind, 2000, static_cast<uint32_t>(round * threads + i), &met, &bad);
    }
    for (std::thread& worker : workers) worker.join();
  }
  EXPECT_EQ(bad, 0);
  EXPECT_GE(met, 2);
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

}  // namespace
}  // namespace processor
