// SPDX-License-Identifier: Apache-2.0
#include "src/base/log.h"

#include <gtest/gtest.h>

#include <atomic>
#include <string>
#include <thread>
#include <vector>

namespace processor {
namespace {

struct Sink {
  static void Take(void* self, int32_t severity, const char* message) {
    auto* sink = static_cast<Sink*>(self);
    ++sink->calls;
    sink->severity = severity;
    sink->message = message;
  }
  int calls = 0;  // the log serializes its sink
  int32_t severity = -1;
  std::string message;
};

class LogTest : public testing::Test {
 protected:
  void TearDown() override { SetLogSink(nullptr, nullptr, static_cast<int32_t>(Severity::kWarning)); }
};

TEST_F(LogTest, SendsMessagesOfSufficientSeverity) {
  Sink sink;
  SetLogSink(&Sink::Take, &sink, static_cast<int32_t>(Severity::kWarning));
  Log(Severity::kInfo, "dropped");
  EXPECT_EQ(sink.calls, 0);
  const std::string line = "a line and more";
  Log(Severity::kError, std::string_view(line).substr(0, 6));
  EXPECT_EQ(sink.calls, 1);
  EXPECT_EQ(sink.severity, static_cast<int32_t>(Severity::kError));
  EXPECT_EQ(sink.message, "a line");
}

TEST_F(LogTest, AFormerSinkIsNotCalledAgain) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      while (!stop) Log(Severity::kError, "line");
    });
  }
  for (int i = 0; i < 200; ++i) {
    Sink sink;  // gone after each round: a later call would write into a dead frame
    SetLogSink(&Sink::Take, &sink, 0);
    std::this_thread::yield();
    Sink next;
    SetLogSink(&Sink::Take, &next, 0);
    const int calls = sink.calls;
    std::this_thread::yield();
    EXPECT_EQ(sink.calls, calls);
    SetLogSink(nullptr, nullptr, 99);
  }
  stop = true;
  for (std::thread& thread : threads) thread.join();
}

}  // namespace
}  // namespace processor
