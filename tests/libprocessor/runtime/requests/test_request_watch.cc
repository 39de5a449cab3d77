// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/requests/request_watch.h"

#include <gtest/gtest.h>
#include <time.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "sleep_ms.h"
#include "src/runtime/requests/deadline.h"
#include "src/runtime/stats/stats.h"

namespace processor {
namespace {

int64_t NowUs() { return NowNs() / 1000; }

// Notes when and why it was stopped.
class Request : public RequestWatch::Entry {
 public:
  bool Stop(const absl::Status& why) noexcept override {
    if (body) body();
    {
      std::lock_guard<std::mutex> lock(mutex_);
      why_ = why;
    }
    stopped_us = NowUs();
    return stops.fetch_add(1) == 0;
  }
  absl::Status why() const {
    std::lock_guard<std::mutex> lock(mutex_);
    return why_;
  }
  bool WaitForStop() const {
    for (int i = 0; i < 5000 && stops == 0; ++i) SleepMs(1);
    return stops > 0;
  }

  std::function<void()> body;
  std::atomic<int> stops{0};
  std::atomic<int64_t> stopped_us{0};

 private:
  mutable std::mutex mutex_;
  absl::Status why_;
};

TEST(DeadlinePoint, DoesNotOverflow) {
  const auto now = std::chrono::steady_clock::now();
  EXPECT_GT(DeadlinePoint(INT64_MAX), now + std::chrono::hours(24 * 365));
  EXPECT_LT(DeadlinePoint(INT64_MIN), now);
  EXPECT_LE(std::chrono::abs(DeadlinePoint(NowUs()) - now), std::chrono::seconds(5));
}

TEST(RequestWatch, StopsAtTheDeadlineAndNotBefore) {
  RequestWatch watch;
  Request third, first, second, past, none;
  const int64_t now = NowUs();
  watch.Add(&none, 0);
  watch.Add(&third, now + 90000);
  watch.Add(&first, now + 30000);
  watch.Add(&second, now + 60000);
  watch.Add(&past, now - 5);
  for (Request* request : {&past, &first, &second, &third}) {
    ASSERT_TRUE(request->WaitForStop());
    EXPECT_TRUE(absl::IsDeadlineExceeded(request->why())) << request->why();
  }
  EXPECT_GE(first.stopped_us, now + 30000);
  EXPECT_GE(second.stopped_us, now + 60000);
  EXPECT_GE(third.stopped_us, now + 90000);
  SleepMs(20);
  for (Request* request : {&past, &first, &second, &third}) {
    EXPECT_EQ(request->stops, 1) << "once, however long it stays";
    watch.Remove(request);
  }
  EXPECT_EQ(none.stops, 0);
  EXPECT_EQ(watch.size(), 1u);
  watch.Remove(&none);
}

TEST(RequestWatch, AnEarlierDeadlineWakesTheThread) {
  RequestWatch watch;
  Request far, soon;
  watch.Add(&far, NowUs() + 3600000000);
  SleepMs(20);
  watch.Add(&soon, NowUs() + 10000);
  EXPECT_TRUE(soon.WaitForStop());
  EXPECT_EQ(far.stops, 0);
  watch.Remove(&far);
  watch.Remove(&soon);
}

TEST(RequestWatch, NoticesNewDeadlineWhileWaitingForARemovedOne) {
  RequestWatch watch;
  for (int i = 0; i < 1000; ++i) {
    Request quick;
    watch.Add(&quick, NowUs() + 30000);
    watch.Remove(&quick);
  }
  Request late;
  const int64_t deadline = NowUs() + 40000;
  watch.Add(&late, deadline);
  ASSERT_TRUE(late.WaitForStop());
  EXPECT_GE(late.stopped_us, deadline);
  watch.Remove(&late);
}

TEST(RequestWatch, InfiniteDeadlineNeitherStopsNorSpins) {
  RequestWatch watch;
  Request request;
  watch.Add(&request, INT64_MAX);
  timespec before, after;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &before);
  SleepMs(200);
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &after);
  const double cpu_seconds =
      static_cast<double>(after.tv_sec - before.tv_sec) + 1e-9 * static_cast<double>(after.tv_nsec - before.tv_nsec);
  EXPECT_LT(cpu_seconds, 0.1) << "the thread spins";
  watch.End();
  EXPECT_EQ(request.stops, 0);
  watch.Remove(&request);
}

TEST(RequestWatch, StopsWatchedRequestByNumber) {
  RequestWatch watch;
  Request one, two;
  watch.Add(&one, 0);
  watch.Add(&two, 0);
  EXPECT_NE(one.number(), 0u);
  EXPECT_NE(one.number(), two.number());
  EXPECT_TRUE(watch.Stop(one.number(), absl::CancelledError("gone")));
  EXPECT_FALSE(watch.Stop(one.number(), absl::CancelledError("gone"))) << "it has been stopped";
  EXPECT_EQ(one.why(), absl::CancelledError("gone"));
  EXPECT_EQ(two.stops, 0);
  EXPECT_FALSE(watch.Stop(0, absl::CancelledError("gone")));
  watch.Remove(&two);
  EXPECT_FALSE(watch.Stop(two.number(), absl::CancelledError("gone"))) << "it has ended";
  watch.Remove(&one);
}

TEST(RequestWatch, StopsAll) {
  RequestWatch watch;
  std::vector<std::unique_ptr<Request>> requests;
  std::vector<std::thread> threads;
  for (int i = 0; i < 40; ++i) requests.push_back(std::make_unique<Request>());
  // From many threads, so that they lie in many lists.
  for (auto& request : requests) threads.emplace_back([&, raw = request.get()] { watch.Add(raw, 0); });
  for (std::thread& thread : threads) thread.join();
  watch.StopAll(absl::CancelledError("freed"));
  for (auto& request : requests) {
    EXPECT_EQ(request->stops, 1);
    watch.Remove(request.get());
  }
}

TEST(RequestWatch, RemoveWaitsForStopOnAnotherThread) {
  RequestWatch watch;
  std::atomic<bool> inside{false}, left{false};
  auto request = std::make_unique<Request>();
  request->body = [&] {
    inside = true;
    SleepMs(50);
    left = true;
  };
  watch.Add(request.get(), 0);
  std::thread stopping([&, number = request->number()] { watch.Stop(number, absl::CancelledError("gone")); });
  while (!inside) SleepMs(1);
  watch.Remove(request.get());
  EXPECT_TRUE(left);
  request.reset();
  stopping.join();
}

TEST(RequestWatch, StopMayRemoveItsRequestAndStopAnother) {
  RequestWatch watch;
  Request other;
  watch.Add(&other, 0);
  class Ending : public RequestWatch::Entry {
   public:
    Ending(RequestWatch* watch, uint64_t other) : watch_(watch), other_(other) {}
    bool Stop(const absl::Status& why) noexcept override {
      RequestWatch* const watch = watch_;
      const uint64_t other = other_;
      watch->Remove(this);
      delete this;
      return watch->Stop(other, why);
    }

   private:
    RequestWatch* const watch_;
    const uint64_t other_;
  };
  auto* const ending = new Ending(&watch, other.number());
  watch.Add(ending, 0);
  EXPECT_TRUE(watch.Stop(ending->number(), absl::CancelledError("gone")));
  EXPECT_EQ(other.stops, 1);
  watch.Remove(&other);
  EXPECT_EQ(watch.size(), 0u);
}

TEST(RequestWatch, RequestsMayBeAddedAndRemovedDuringStopAll) {
  RequestWatch watch;
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < 3000; ++i) {
        Request request;
        watch.Add(&request, i % 3 == 0 ? NowUs() + 50 : 0);
        watch.Remove(&request);
      }
    });
  }
  std::thread stopping([&] {
    while (!stop) watch.StopAll(absl::CancelledError("freed"));
  });
  for (std::thread& thread : threads) thread.join();
  stop = true;
  stopping.join();
  EXPECT_EQ(watch.size(), 0u);
}

}  // namespace
}  // namespace processor
