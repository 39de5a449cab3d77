// SPDX-License-Identifier: Apache-2.0
#include "src/base/byte_budget.h"

#include <algorithm>
#include <cstdlib>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "src/base/log.h"
#include "src/base/machine_memory.h"

namespace processor {
namespace {

constexpr int64_t kLeastDefault = int64_t{256} << 20;
constexpr char kVariable[] = "PROCESSOR_MAX_REQUEST_BYTES_IN_FLIGHT";

}  // namespace

const char* ByteBudget::UseName(Use use) {
  constexpr const char* kNames[kUses] = {"body", "tensors", "run", "answer"};
  return kNames[static_cast<int>(use)];
}

ByteBudget& ByteBudget::Requests() {
  static auto* const budget = new ByteBudget(DefaultRequestBytes());
  return *budget;
}

ByteBudget& ByteBudget::WarmUp() {
  static auto* const budget = new ByteBudget(Requests().limit());
  return *budget;
}

int64_t ByteBudget::MostFor(Use use, int64_t bytes, int64_t held) const noexcept {
  const int64_t limit = this->limit();
  if (use == Use::kBody) return bytes + held > kSmallBody ? limit / 2 : limit;
  return bytes > kSmallClaim ? limit - limit / 8 : limit;
}

bool ByteBudget::Claim(Use use, int64_t bytes, int64_t held) noexcept {
  Count& count = counts_[static_cast<int>(use)];
  const int64_t most = MostFor(use, bytes, held);
  int64_t before = in_use_.load(std::memory_order_relaxed);
  do {
    if (bytes > most - before) {
      count.refused.fetch_add(1, std::memory_order_relaxed);
      return false;
    }
  } while (!in_use_.compare_exchange_weak(before, before + bytes, std::memory_order_relaxed));
  count.bytes.fetch_add(bytes, std::memory_order_relaxed);
  const int64_t now = before + bytes;
  int64_t peak = peak_.load(std::memory_order_relaxed);
  while (now > peak && !peak_.compare_exchange_weak(peak, now, std::memory_order_relaxed)) {
  }
  return true;
}

void ByteBudget::Release(Use use, int64_t bytes) noexcept {
  counts_[static_cast<int>(use)].bytes.fetch_sub(bytes, std::memory_order_relaxed);
  in_use_.fetch_sub(bytes, std::memory_order_relaxed);
}

absl::Status ByteBudget::Refusal(Use use, std::string_view what, int64_t bytes, int64_t held) const {
  const int64_t most = MostFor(use, bytes, held);
  if (bytes > most - held) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": ", bytes, " bytes of memory beside ", held,
                                                   " of the same request, expected at most ", most,
                                                   " (max_request_bytes_in_flight is ", limit(), ")"));
  }
  return absl::ResourceExhaustedError(absl::StrCat(what, ": ", bytes, " bytes of memory beside ", in_use(),
                                                   " of requests in flight, expected at most ", most,
                                                   " in all (max_request_bytes_in_flight is ", limit(), ")"));
}

int64_t DefaultRequestBytes() {
  if (const char* const text = std::getenv(kVariable); text != nullptr && *text != '\0') {
    int64_t bytes = 0;
    if (absl::SimpleAtoi(text, &bytes) && bytes > 0) return bytes;
    Log(Severity::kError, absl::StrCat(kVariable, ": '", text, "', expected a number of bytes; the default is used"));
  }
  return std::max(kLeastDefault, MemoryAllowed() / 10);
}

absl::Status SetRequestBytes(uint64_t bytes) {
  constexpr uint64_t kLeast = uint64_t{1} << 20, kMost = uint64_t{1} << 60;
  if (bytes != 0 && (bytes < kLeast || bytes > kMost)) {
    return absl::InvalidArgumentError(absl::StrCat("max_request_bytes_in_flight: ", bytes, ", expected ", kLeast,
                                                   " to ", kMost, ", or 0 for the default"));
  }
  const int64_t limit = bytes == 0 ? DefaultRequestBytes() : static_cast<int64_t>(bytes);
  ByteBudget::Requests().SetLimit(limit);
  ByteBudget::WarmUp().SetLimit(limit);
  return absl::OkStatus();
}

nlohmann::ordered_json RequestBytesJson() {
  const ByteBudget& budget = ByteBudget::Requests();
  nlohmann::ordered_json uses, refused;
  for (int i = 0; i < ByteBudget::kUses; ++i) {
    const auto use = static_cast<ByteBudget::Use>(i);
    uses[ByteBudget::UseName(use)] = budget.in_use(use);
    refused[ByteBudget::UseName(use)] = budget.refused(use);
  }
  return {{"limit", budget.limit()}, {"in_use", uses}, {"peak", budget.peak()}, {"refused", refused}};
}

}  // namespace processor
