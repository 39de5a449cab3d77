// SPDX-License-Identifier: Apache-2.0
// The memory that requests in flight may hold: one budget for all models and hosts of the process.
//
// Whoever is about to take memory because a client asked for it claims the bytes first, and gives them back with the
// memory. What does not fit is refused before it is allocated, so that a client cannot end the process. Memory that does
// not grow with a request (a block of a few kilobytes) is not claimed: the number of requests in flight bounds it.
//
// Large claims leave room for small ones, so that ordinary requests go on being answered while large ones fill the
// budget: see MostFor().
#ifndef PROCESSOR_BASE_BYTE_BUDGET_H_
#define PROCESSOR_BASE_BYTE_BUDGET_H_

#include <atomic>
#include <cstdint>
#include <string_view>
#include <utility>

#include "absl/status/status.h"
#include "nlohmann/json_fwd.hpp"

namespace processor {

class ByteBudget {
 public:
  /// What bytes are claimed for: a request as it comes, its tensors, what its run computes, its response.
  enum class Use : uint8_t { kBody, kTensors, kRun, kAnswer };
  static constexpr int kUses = 4;
  static const char* UseName(Use use);

  /// What requests may hold. Never destroyed: memory may be given back while the process exits.
  static ByteBudget& Requests();
  /// What runs for warm-up may hold: as much as requests, and beside them. What they leave to the model (a table that
  /// the first run fills) is no request's.
  static ByteBudget& WarmUp();

  explicit ByteBudget(int64_t limit) : limit_(limit) {}
  ByteBudget(const ByteBudget&) = delete;
  ByteBudget& operator=(const ByteBudget&) = delete;

  /// False if there is no room. `held`: what the same body has claimed already.
  bool Claim(Use use, int64_t bytes, int64_t held = 0) noexcept;
  void Release(Use use, int64_t bytes) noexcept;

  /// What a claim may fill the budget up to. A body above kSmallBody: half, for bodies may come slowly. Another claim
  /// above kSmallClaim: seven eighths.
  int64_t MostFor(Use use, int64_t bytes, int64_t held = 0) const noexcept;

  /// Why a claim was refused: INVALID_ARGUMENT for what could never fit, else RESOURCE_EXHAUSTED.
  /// `what` names the object: "input 'x'". `held`: what the same request holds already.
  absl::Status Refusal(Use use, std::string_view what, int64_t bytes, int64_t held = 0) const;

  int64_t limit() const noexcept { return limit_.load(std::memory_order_relaxed); }
  /// From now on; what is claimed stays.
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

/// The limit where nobody says another: PROCESSOR_MAX_REQUEST_BYTES_IN_FLIGHT of the environment, else a tenth of the
/// memory that the process may have, but at least 256 MiB.
int64_t DefaultRequestBytes();

/// Sets the limit of requests and of warm-up; 0: the default. \return INVALID_ARGUMENT for less than 1 MiB or too much.
absl::Status SetRequestBytes(uint64_t bytes);

/// The limit, what is in use and for what, the most that was, and how many claims were refused.
nlohmann::ordered_json RequestBytesJson();

/// Bytes that are claimed until the scope ends.
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

  /// Claims more. \return as ByteBudget::Refusal().
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
