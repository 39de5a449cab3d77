// SPDX-License-Identifier: Apache-2.0
#include "src/tables/early_rows.h"

#include <algorithm>
#include <atomic>
#include <utility>

#include "src/base/byte_budget.h"
#include "src/base/memory_block.h"

namespace processor {
namespace {

constexpr size_t kBufferAlignment = 4096;  // of memory that O_DIRECT reads into
constexpr size_t kBytesOfRequest = 16384;  // what else a request that waits takes, about
constexpr auto kUse = ByteBudget::Use::kRun;

std::atomic<int64_t> g_bytes{0};
std::atomic<int64_t> g_pieces{0};  // that are read
thread_local EarlyRowsList t_current;

// Takes memory from the budget of early rows, and from that of requests.
bool Claim(int64_t bytes) {
  if (g_bytes.fetch_add(bytes, std::memory_order_relaxed) + bytes <= EarlyRows::kMostBytes &&
      ByteBudget::Requests().Claim(kUse, bytes)) {
    return true;
  }
  g_bytes.fetch_sub(bytes, std::memory_order_relaxed);
  return false;
}

}  // namespace

int64_t EarlyRows::BytesOfAll() { return g_bytes.load(std::memory_order_relaxed); }

EarlyRows::~EarlyRows() {
  FreeBlock(buffer_);
  if (claimed_ == 0) return;
  ByteBudget::Requests().Release(kUse, claimed_);
  g_bytes.fetch_sub(claimed_, std::memory_order_relaxed);
}

void EarlyRows::Want(TieredRows* rows, absl::Span<const uint32_t> numbers) {
  if (wanted_.size() >= kMostWanted) return;
  if (missing_.size() <= numbers.size()) missing_.resize(numbers.size() + 1);
  const size_t count = rows->caches_->FindMissing(numbers, missing_.data());
  for (size_t i = 0; i < count && wanted_.size() < kMostWanted; ++i) {
    wanted_.push_back({rows, numbers[missing_[i]], nullptr});
  }
}

bool EarlyRows::Prepare() {
  missing_ = {};
  if (wanted_.empty() || g_pieces.load(std::memory_order_relaxed) >= kMostPieces) return false;
  std::sort(wanted_.begin(), wanted_.end());
  const auto same = [](const TieredMiss& a, const TieredMiss& b) { return !(a < b) && !(b < a); };
  wanted_.erase(std::unique(wanted_.begin(), wanted_.end(), same), wanted_.end());
  wanted_.resize(layout_.LayOut(wanted_, 0, wanted_.size(), kMostBytes / 8));
  wanted_.shrink_to_fit();
  const auto bytes =
      static_cast<int64_t>(layout_.bytes() + kBytesOfRequest + 2 * wanted_.capacity() * sizeof(TieredMiss));
  if (!Claim(bytes)) return false;
  claimed_ = bytes;
  buffer_ = static_cast<uint8_t*>(NewBlock(layout_.bytes(), kBufferAlignment));
  if (buffer_ == nullptr) return false;
  layout_.Place(buffer_);
  pieces = std::move(layout_.pieces());
  found_.reserve(wanted_.size());
  return true;
}

void EarlyRows::Start(const std::shared_ptr<EarlyRows>& rows, std::function<void()> ended) {
  rows->ended_ = std::move(ended);
  g_pieces.fetch_add(static_cast<int64_t>(rows->pieces.size()), std::memory_order_relaxed);
  StartReads(rows);
}

void EarlyRows::Finished() noexcept {
  g_pieces.fetch_sub(static_cast<int64_t>(pieces.size()), std::memory_order_relaxed);
  const std::function<void()> ended = std::exchange(ended_, nullptr);
  ended();
}

void EarlyRows::Take() {
  for (size_t p = 0; p < pieces.size(); ++p) {
    // What is damaged is read again when the request runs, which then fails.
    layout_
        .Take(wanted_, pieces, p,
              [&](size_t m, const uint8_t* row) {
                found_.push_back({wanted_[m].rows, wanted_[m].number, const_cast<uint8_t*>(row)});
              })
        .IgnoreError();
  }
}

const uint8_t* EarlyRows::Find(const TieredRows* rows, uint32_t number) const {
  const TieredMiss sought{const_cast<TieredRows*>(rows), number, nullptr};
  const auto at = std::lower_bound(found_.begin(), found_.end(), sought);
  return at == found_.end() || sought < *at ? nullptr : at->dst;
}

EarlyRowsScope::EarlyRowsScope(EarlyRowsList rows) noexcept : before_(t_current) { t_current = rows; }
EarlyRowsScope::~EarlyRowsScope() { t_current = before_; }
EarlyRowsList EarlyRowsScope::Current() noexcept { return t_current; }

}  // namespace processor
