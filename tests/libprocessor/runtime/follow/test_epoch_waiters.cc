// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/follow/epoch_waiters.h"

#include <cstdint>
#include <string>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace processor {
namespace {

class EpochWaitersTest : public testing::Test {
 protected:
  void Wait(int64_t epoch, int64_t until_us) {
    const size_t place = ends_.size();
    ends_.emplace_back();
    waiters_.Wait(epoch, until_us, [this, place](const absl::Status& status) {
      ends_[place] += status.ok() ? "OK" : std::string(status.message());
    });
  }

  EpochWaiters waiters_;
  std::vector<std::string> ends_;
};

TEST_F(EpochWaitersTest, RequestsContinueWhenTheirEpochIsReached) {
  waiters_.Reach(4);
  for (int64_t epoch : {4, 5, 7}) Wait(epoch, INT64_MAX);
  EXPECT_EQ(ends_, (std::vector<std::string>{"OK", "", ""}));
  waiters_.Reach(6);
  EXPECT_EQ(ends_, (std::vector<std::string>{"OK", "OK", ""}));
  waiters_.Reach(3);
  Wait(6, INT64_MAX);
  EXPECT_EQ(ends_.back(), "") << "the epoch has gone back";
  waiters_.Reach(7);
  EXPECT_EQ(ends_, (std::vector<std::string>{"OK", "OK", "OK", "OK"}));
}

TEST_F(EpochWaitersTest, RequestsEndAtTheirTime) {
  Wait(2, 300);
  Wait(2, 100);
  Wait(2, 200);
  EXPECT_EQ(waiters_.Expire(99), 100);
  EXPECT_EQ(ends_, (std::vector<std::string>{"", "", ""}));
  EXPECT_EQ(waiters_.Expire(200), 300);
  const std::string late = "request: epoch 2 expected, the model has reached 0";
  EXPECT_EQ(ends_, (std::vector<std::string>{"", late, late}));
  waiters_.Reach(2);
  EXPECT_EQ(waiters_.Expire(1000), INT64_MAX);
  EXPECT_EQ(ends_, (std::vector<std::string>{"OK", late, late}));
}

TEST_F(EpochWaitersTest, NoRequestWaitsForAnEpochAfterTheOneThatIsHeld) {
  Wait(2, INT64_MAX);
  Wait(3, INT64_MAX);
  waiters_.SetHeld(2);
  EXPECT_EQ(waiters_.Expire(0), INT64_MAX);
  Wait(4, INT64_MAX);
  const std::string held = " expected, the model is held at 2 by a rollback";
  EXPECT_EQ(ends_, (std::vector<std::string>{"", "request: epoch 3" + held, "request: epoch 4" + held}));
  waiters_.Reach(4);
  Wait(3, INT64_MAX);
  EXPECT_EQ(ends_.back(), "request: epoch 3" + held) << "the model is about to go back";
  waiters_.SetHeld(std::nullopt);
  Wait(5, INT64_MAX);
  EXPECT_EQ(ends_.back(), "");
}

TEST_F(EpochWaitersTest, NoRequestWaitsAfterAStop) {
  waiters_.Reach(1);
  Wait(2, INT64_MAX);
  waiters_.Stop(absl::CancelledError("freed"));
  Wait(2, INT64_MAX);
  Wait(1, INT64_MAX);
  EXPECT_EQ(ends_, (std::vector<std::string>{"freed", "freed", "OK"}));
}

TEST(EpochWaitersThreads, EveryRequestEndsOnce) {
  EpochWaiters waiters;
  std::vector<int> ended(2000, 0);
  std::thread advancing([&] {
    for (int64_t epoch = 1; epoch <= 2000; ++epoch) waiters.Reach(epoch);
  });
  for (int i = 0; i < 2000; ++i) waiters.Wait(i + 1, INT64_MAX, [&ended, i](const absl::Status&) { ++ended[i]; });
  advancing.join();
  EXPECT_EQ(ended, std::vector<int>(2000, 1));
}

}  // namespace
}  // namespace processor
