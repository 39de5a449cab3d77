// SPDX-License-Identifier: Apache-2.0
// Requests that wait for something other than a place.
#include <gtest/gtest.h>

#include "batcher_fixture.h"

namespace processor {
namespace {

// Is postponed as often as the test says.
class PostponedEntry : public FakeEntry {
 public:
  using FakeEntry::FakeEntry;
  bool Postpone() noexcept override { return ++postponed <= times; }

  std::atomic<int> postponed{0};
  int times = 1;
};

class PostponeTest : public BatcherTest {
 protected:
  static bool Ended(const FakeEntry& entry) {
    return Eventually([&] { return entry.told + entry.fails == 1; });
  }
};

TEST_F(PostponeTest, APostponedRequestHoldsNoPlace) {
  Begin(ZeroWait());
  PostponedEntry slow(1);
  FakeEntry quick(2);
  ASSERT_TRUE(batcher_->Start(&slow, 0).ok());
  ASSERT_TRUE(Eventually([&] { return slow.postponed == 1; }));
  ASSERT_TRUE(batcher_->Start(&quick, 0).ok());
  EXPECT_TRUE(Ended(quick)) << "the only place is free";
  EXPECT_EQ(slow.runs, 0);
  EXPECT_EQ(batcher_->waiting(), 1u);
  batcher_->Resume(&slow);
  EXPECT_TRUE(Ended(slow));
  EXPECT_EQ(slow.runs, 1);
  EXPECT_EQ(slow.prepared, 1) << "it is read once";
  EXPECT_EQ(slow.postponed, 1);
  EXPECT_TRUE(Eventually([&] { return batcher_->waiting() == 0; }));
}

TEST_F(PostponeTest, PostponedRequestsCountAsWaiting) {
  Begin(ZeroWait(), 1, /*max_waiting=*/2);
  PostponedEntry one(1), two(2);
  FakeEntry three(3);
  ASSERT_TRUE(batcher_->Start(&one, 0).ok());
  ASSERT_TRUE(Eventually([&] { return one.postponed == 1; }));
  ASSERT_TRUE(batcher_->Start(&two, 0).ok());
  ASSERT_TRUE(Eventually([&] { return two.postponed == 1; }));
  EXPECT_EQ(batcher_->Start(&three, 0).code(), absl::StatusCode::kResourceExhausted);
  batcher_->EndPostponed();  // its owner has ended it
  EXPECT_TRUE(batcher_->Start(&three, 0).ok());
  EXPECT_TRUE(Ended(three));
  batcher_->Resume(&two);
  EXPECT_TRUE(Ended(two));
}

TEST_F(PostponeTest, AStoppedBatcherFailsThem) {
  Begin(ZeroWait());
  PostponedEntry entry(1);
  ASSERT_TRUE(batcher_->Start(&entry, 0).ok());
  ASSERT_TRUE(Eventually([&] { return entry.postponed == 1; }));
  batcher_->Stop(absl::CancelledError("freed"));
  EXPECT_EQ(entry.fails, 0);
  batcher_->Resume(&entry);
  EXPECT_EQ(entry.fails, 1);
  EXPECT_EQ(entry.failure.message(), "freed");
}

}  // namespace
}  // namespace processor
