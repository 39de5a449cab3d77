// SPDX-License-Identifier: Apache-2.0
// The modern ABI's functions that concern the memory of requests in flight.
#include <algorithm>
#include <cstdint>

#include "processor/processor.h"
#include "src/base/byte_budget.h"
#include "src/c_api/boundary.h"

namespace {

using processor::ByteBudget;
using processor::Guard;

// A claim of more bytes is refused like one that is too large.
int64_t SignedBytes(uint64_t bytes) { return static_cast<int64_t>(std::min<uint64_t>(bytes, INT64_MAX / 2)); }

}  // namespace

extern "C" {

processor_status processor_request_bytes_set_limit(uint64_t bytes, processor_error *error) {
  return Guard(error, [&] { return processor::SetRequestBytes(bytes); });
}

uint64_t processor_request_bytes_limit(void) { return static_cast<uint64_t>(ByteBudget::Requests().limit()); }

processor_status processor_request_bytes_claim(uint64_t held, uint64_t more, processor_error *error) {
  ByteBudget &budget = ByteBudget::Requests();
  if (budget.Claim(ByteBudget::Use::kBody, SignedBytes(more), SignedBytes(held))) return PROCESSOR_OK;
  return Guard(error,
               [&] { return budget.Refusal(ByteBudget::Use::kBody, "request", SignedBytes(more), SignedBytes(held)); });
}

void processor_request_bytes_release(uint64_t bytes) {
  ByteBudget::Requests().Release(ByteBudget::Use::kBody, SignedBytes(bytes));
}

}  // extern "C"
