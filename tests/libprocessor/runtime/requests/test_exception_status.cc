// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/requests/exception_status.h"

#include <gtest/gtest.h>

#include <new>
#include <stdexcept>
#include <string>

#include "failing_allocations.h"

namespace processor {
namespace {

TEST(ExceptionStatus, ContainsMessageOfException) {
  EXPECT_EQ(Attempt([] { return absl::NotFoundError("x"); }), absl::NotFoundError("x"));
  EXPECT_EQ(Attempt([]() -> absl::Status { throw std::runtime_error("broken"); }), absl::InternalError("broken"));
  EXPECT_EQ(Attempt([]() -> absl::Status { throw std::bad_alloc(); }), NoMemoryStatus());
  EXPECT_TRUE(absl::IsInternal(Attempt([]() -> absl::Status { throw 7; })));
}

TEST(ExceptionStatus, NeedsNoMemory) {
  const std::runtime_error fault("a text that is too long to be kept in place, wherever that place might be");
  FailAllocation(0);
  const absl::Status internal = StatusWithoutThrowing(absl::StatusCode::kInternal, fault.what());
  EXPECT_TRUE(AllocationHasFailed());
  EXPECT_EQ(internal.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(internal.message(), "");
  FailAllocation(0);
  const absl::Status exhausted = Attempt([]() -> absl::Status { return absl::NotFoundError(std::string(100, 'x')); });
  EXPECT_TRUE(AllocationHasFailed());
  EXPECT_TRUE(absl::IsResourceExhausted(exhausted));
  EXPECT_EQ(exhausted.message(), "no memory left");
}

}  // namespace
}  // namespace processor
