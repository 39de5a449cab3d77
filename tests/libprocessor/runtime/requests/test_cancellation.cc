// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/requests/cancellation.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

namespace processor {
namespace {

class Told : public Cancellation::Listener {
 public:
  void OnCancel() noexcept override { ++times; }
  std::atomic<int> times{0};
};

TEST(Cancellation, KeepsTheFirstReason) {
  Cancellation cancellation;
  EXPECT_FALSE(cancellation.requested());
  EXPECT_TRUE(cancellation.why().ok());
  EXPECT_TRUE(cancellation.Request(absl::DeadlineExceededError("late")));
  EXPECT_FALSE(cancellation.Request(absl::CancelledError("gone")));
  EXPECT_TRUE(cancellation.requested());
  EXPECT_EQ(cancellation.why(), absl::DeadlineExceededError("late"));
}

TEST(Cancellation, CallsListenerOnceAndNotAfterUnlisten) {
  Told told;
  Cancellation cancellation;
  EXPECT_TRUE(cancellation.Listen(&told));
  cancellation.Request(absl::CancelledError("gone"));
  cancellation.Request(absl::CancelledError("gone"));
  EXPECT_EQ(told.times, 1);
  EXPECT_FALSE(cancellation.Listen(&told)) << "it would wait for ever";

  Cancellation other;
  EXPECT_TRUE(other.Listen(&told));
  other.Unlisten();
  other.Request(absl::CancelledError("gone"));
  EXPECT_EQ(told.times, 1);
}

TEST(Cancellation, ListenerMayBeDestroyedAfterUnlisten) {
  for (int i = 0; i < 2000; ++i) {
    Cancellation cancellation;
    std::thread other([&] { cancellation.Request(absl::CancelledError("gone")); });
    {
      Told told;
      if (cancellation.Listen(&told)) cancellation.Unlisten();
    }
    other.join();
  }
}

TEST(Cancellation, IsCurrentInItsScopeOnItsThread) {
  Cancellation outer, inner;
  EXPECT_EQ(Cancellation::Current(), nullptr);
  {
    const Cancellation::Scope scope(&outer);
    EXPECT_EQ(Cancellation::Current(), &outer);
    {
      const Cancellation::Scope nested(&inner);
      EXPECT_EQ(Cancellation::Current(), &inner);
      std::thread([] { EXPECT_EQ(Cancellation::Current(), nullptr); }).join();
    }
    EXPECT_EQ(Cancellation::Current(), &outer);
  }
  EXPECT_EQ(Cancellation::Current(), nullptr);
}

TEST(JointCancellation, NeedsAllMembers) {
  Cancellation first, second, third;
  third.Request(absl::CancelledError("before it began"));
  JointCancellation joint({&first, &second, &third});
  EXPECT_FALSE(joint.all().requested());
  second.Request(absl::DeadlineExceededError("late"));
  EXPECT_FALSE(joint.all().requested()) << "the first is still wanted";
  first.Request(absl::CancelledError("gone"));
  EXPECT_TRUE(joint.all().requested());
  EXPECT_TRUE(absl::IsCancelled(joint.all().why()));
}

TEST(JointCancellation, IsCancelledAtOnceIfAllMembersAreCancelled) {
  Cancellation one;
  one.Request(absl::CancelledError("gone"));
  JointCancellation joint({&one});
  EXPECT_TRUE(joint.all().requested());
}

TEST(JointCancellation, ReleasesListenersOfItsMembers) {
  Cancellation one;
  {
    JointCancellation joint({&one});
  }
  Told told;
  EXPECT_TRUE(one.Listen(&told));
  one.Request(absl::CancelledError("gone"));
  EXPECT_EQ(told.times, 1);
}

}  // namespace
}  // namespace processor
