// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/requests/request_gate.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>
#include <vector>

#include "src/runtime/stats/stats.h"

namespace processor {
namespace {

using GateState = RequestGate::State;

TEST(RequestGate, OpenGateCountsAdmittedRequests) {
  RequestGate gate("model", "one that is loaded");
  ASSERT_TRUE(gate.Admit().ok());
  EXPECT_EQ(gate.in_flight(), 1);
  {
    const RequestGate::Visit visit(&gate);
    EXPECT_EQ(gate.in_flight(), 2);
  }
  gate.Leave();
  EXPECT_EQ(gate.in_flight(), 0);
}

TEST(RequestGate, DrainingGateRefusesWithoutCounting) {
  RequestGate gate("host", "one that serves");
  ASSERT_TRUE(gate.BeginDrain().ok());
  const absl::Status refused = gate.Admit();
  EXPECT_TRUE(absl::IsUnavailable(refused)) << refused;
  EXPECT_EQ(refused.message(), "host: draining, expected one that serves");
  EXPECT_EQ(gate.in_flight(), 0);
  EXPECT_TRUE(gate.BeginDrain().ok()) << "may be called again";
}

TEST(RequestGate, AClosedGateStaysClosed) {
  RequestGate gate("model", "one that is loaded");
  EXPECT_EQ(gate.Close(), GateState::kServing);
  EXPECT_EQ(gate.Close(), GateState::kClosed);
  const absl::Status refused = gate.Admit();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_EQ(refused.message(), "model: freed, expected one that is loaded");
  EXPECT_EQ(gate.BeginDrain(), refused);
  EXPECT_EQ(gate.state(), GateState::kClosed);
}

TEST(RequestGate, WaitingEndsAtTheDeadline) {
  RequestGate gate("model", "one that is loaded");
  ASSERT_TRUE(gate.Admit().ok());
  const absl::Status late = gate.WaitUntilIdle(NowNs() / 1000 + 1000);
  EXPECT_TRUE(absl::IsDeadlineExceeded(late)) << late;
  EXPECT_EQ(late.message(), "model: 1 requests left at the deadline");
  gate.WaitUntilIdleFor(0.001);
  EXPECT_EQ(gate.in_flight(), 1);
}

TEST(RequestGate, LastRequestThatLeavesWakesWaitingThread) {
  RequestGate gate("model", "one that is loaded");
  std::atomic<int> left{0};
  std::vector<std::thread> requests;
  for (int i = 0; i < 8; ++i) {
    ASSERT_TRUE(gate.Admit().ok());
    requests.emplace_back([&] {
      ++left;
      gate.Leave();
    });
  }
  ASSERT_TRUE(gate.BeginDrain().ok());
  EXPECT_TRUE(gate.WaitUntilIdle(/*deadline_us=*/0).ok());
  EXPECT_EQ(left.load(), 8);
  for (std::thread& request : requests) request.join();
}

}  // namespace
}  // namespace processor
