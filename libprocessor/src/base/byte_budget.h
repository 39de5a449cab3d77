// SPDX-License-Identifier: Apache-2.0
// The memory that requests in flight may hold: one budget for all models and hosts of the process.
//
// Code that allocates memory in proportion to a request claims the bytes first, and releases the claim with the memory.
// A claim that does not fit is refused before anything is allocated, so that a client cannot end the process. Memory
// that does not grow with a request (a block of a few kilobytes) is not claimed: the number of requests in flight bounds
// it.
//
// Large claims leave room for small ones, so that ordinary requests are still answered while large ones fill the budget:
// see MostFor().
#ifndef PROCESSOR_BASE_BYTE_BUDGET_H_
#define PROCESSOR_BASE_BYTE_BUDGET_H_

#include <atomic>
#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "nlohmann/json_fwd.hpp"

namespace processor {

/// A limit on bytes and the claims under it. Any thread may call all functions.
class ByteBudget {
 public:
  /// What bytes are claimed for: the body of a request, its tensors, the memory of its run, its response.
  enum class Use : uint8_t { kBody, kTensors, kRun, kAnswer };
  static constexpr int kUses = 4;
  static const char* UseName(Use use);

  /// The budget of requests. It is never destroyed, because memory may be released while the process exits.
  static ByteBudget& Requests();
  /// The budget of warm-up runs: as large as that of requests, and separate from it, because what a first run leaves in
  /// the model (a table that it fills) belongs to no request.
  static ByteBudget& WarmUp();

  explicit ByteBudget(int64_t limit) : limit_(limit) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  /// Returns false if there is no room. `held`: bytes that the same body has claimed already.
  bool Claim(Use use, int64_t bytes, int64_t held = 0) noexcept;
  void Release(Use use, int64_t bytes) noexcept;

  /// Returns up to how many bytes in use a claim is granted: half of the budget for a body above kSmallBody, because
  /// bodies may arrive slowly; seven eighths for any other claim above kSmallClaim; else all of it.
  int64_t MostFor(Use use, int64_t bytes, int64_t held = 0) const noexcept;

  /// Returns why a claim was refused: INVALID_ARGUMENT if it could never fit, else RESOURCE_EXHAUSTED.
  /// `what` names the object: "input 'x'". `held`: bytes that the same request holds already.
  absl::Status Refusal(Use use, std::string_view what, int64_t bytes, int64_t held = 0) const;

  int64_t limit() const noexcept { return limit_.load(std::memory_order_relaxed); }
  /// Sets the limit of future claims; existing claims stay.
  void SetLimit(int64_t bytes) noexcept { limit_.store(bytes, std::memory_order_relaxed); }
  int64_t in_use() const noexcept { return in_use_.load(std::memory_order_relaxed); }
  int64_t in_use(Use use) const noexcept { return counts_[static_cast<int>(use)].bytes.load(); }
  int64_t peak() const noexcept { return peak_.load(std::memory_order_relaxed); }
  uint64_t refused(Use use) const noexcept { return counts_[static_cast<int>(use)].refused.load(); }

  static constexpr int64_t kSmallBody = int64_t{64} << 10;
  static constexpr int64_t kSmallClaim = int64_t{1} << 20;

 private:
  struct Count {
    std::atomic<int64_t> bytes{0};
    std::atomic<uint64_t> refused{0};
  };

  std::atomic<int64_t> limit_;
  std::atomic<int64_t> in_use_{0};
  std::atomic<int64_t> peak_{0};
  Count counts_[kUses];
};

/// Returns the default limit: PROCESSOR_MAX_REQUEST_BYTES_IN_FLIGHT of the environment, else a tenth of the memory that
/// the process may have, but at least 256 MiB.
int64_t DefaultRequestBytes();

/// Sets the limit of both budgets; 0 sets the default.
/// \return INVALID_ARGUMENT for less than 1 MiB or too much.
absl::Status SetRequestBytes(uint64_t bytes);

/// Describes the budget of requests: its limit, the bytes in use by their use, their peak, and the refused claims.
nlohmann::ordered_json RequestBytesJson();

/// Owns claimed bytes and releases them at the end of its scope. One thread uses it at a time.
class ByteClaim {
 public:
  explicit ByteClaim(ByteBudget::Use use, ByteBudget* budget = &ByteBudget::Requests()) : budget_(budget), use_(use) {}
  ByteClaim(ByteClaim&& other) noexcept
      : budget_(other.budget_), use_(other.use_), bytes_(std::exchange(other.bytes_, 0)) {}
  ByteClaim& operator=(ByteClaim&& other) noexcept {
    std::swap(budget_, other.budget_);
    std::swap(use_, other.use_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }
  ~ByteClaim() { Release(); }

  /// Claims more bytes. \return as ByteBudget::Refusal().
  absl::Status Add(std::string_view what, size_t bytes) {
    const auto more = static_cast<int64_t>(bytes);
    if (!budget_->Claim(use_, more, bytes_)) return budget_->Refusal(use_, what, more, bytes_);
    bytes_ += more;
    return absl::OkStatus();
  }
  void Release() noexcept {
    if (bytes_ > 0) budget_->Release(use_, std::exchange(bytes_, 0));
  }

 private:
  ByteBudget* budget_;
  ByteBudget::Use use_;
  int64_t bytes_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_BASE_BYTE_BUDGET_H_
