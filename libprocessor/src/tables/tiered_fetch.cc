// SPDX-License-Identifier: Apache-2.0
#include "src/tables/tiered_fetch.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include "src/base/huge_memory.h"
#include "src/base/kept_objects.h"
#include "src/tables/read_batch.h"

namespace processor {
namespace {

// What is read at a time: a hundred blocks that have not been checked, or more pieces than a device works at.
constexpr size_t kReadBufferBytes = size_t{8} << 20;
static_assert(kReadBufferBytes >= TieredPieces::kLeastBuffer);

// What a thread reads with, which the next one uses again.
struct BatchReader {
  std::unique_ptr<ReadBatch> batch = ReadBatch::Make();
  HugeMemory buffer{kReadBufferBytes};
};

KeptObjects<BatchReader>& BatchReaders() {
  static auto* const readers = new KeptObjects<BatchReader>;
  return *readers;
}

}  // namespace

void TieredFetch::Add(TieredRows* rows, absl::Span<const uint32_t> numbers, size_t stride, uint8_t* dst) {
  if (missing_.size() < numbers.size()) missing_.resize(numbers.size());
  size_t lookups = 0;
  for (const uint32_t number : numbers) lookups += number < rows->num_rows_;
  const size_t count = rows->caches_->Get(numbers, stride, dst, missing_.data());
  for (size_t i = 0; i < count; ++i) {
    misses_.push_back({rows, numbers[missing_[i]], dst + missing_[i] * stride});
  }
  rows->lookups_.fetch_add(lookups, std::memory_order_relaxed);
  rows->misses_.fetch_add(count, std::memory_order_relaxed);
}

// Takes the rows that were read before the request ran.
void TieredFetch::TakeEarly(EarlyRowsList early) {
  size_t left = 0;
  for (size_t m = 0; m < misses_.size(); ++m) {
    const TieredMiss miss = misses_[m];
    const uint8_t* row = nullptr;
    for (size_t i = 0; i < early.size() && row == nullptr; ++i) row = early[i]->Find(miss.rows, miss.number);
    if (row == nullptr) {
      misses_[left++] = miss;
      continue;
    }
    std::memcpy(miss.dst, row, miss.rows->BytesOf(miss.number));
    miss.rows->early_rows_.fetch_add(1, std::memory_order_relaxed);
    // A row that is needed several times is offered once.
    const bool is_last = m + 1 == misses_.size() || miss < misses_[m + 1];
    if (is_last) miss.rows->caches_->Offer(miss.number, row);
  }
  misses_.resize(left);
}

absl::Status TieredFetch::Finish(EarlyRowsList early) {
  // Rows that are neighbors are read together, and a row once.
  std::sort(misses_.begin(), misses_.end());
  if (!early.empty()) TakeEarly(early);
  return misses_.empty() ? absl::OkStatus() : ReadMisses();
}

absl::Status TieredFetch::ReadMisses() {
  std::unique_ptr<BatchReader> reader;
  try {
    reader = BatchReaders().Take();
  } catch (const std::bad_alloc&) {
    misses_.clear();
    return absl::ResourceExhaustedError("tiered tables: no memory to read rows");
  }
  const auto take = [this](size_t m, const uint8_t* row) {
    const TieredMiss& miss = misses_[m];
    std::memcpy(miss.dst, row, miss.rows->BytesOf(miss.number));
    if (m == 0 || misses_[m - 1] < miss) miss.rows->caches_->Offer(miss.number, row);
  };
  absl::Status status;
  for (size_t first = 0; first < misses_.size() && status.ok();) {
    first = pieces_.LayOut(misses_, first, ReadBatch::kMostPieces, kReadBufferBytes);
    pieces_.Place(reader->buffer.data());
    std::vector<ReadPiece>& pieces = pieces_.pieces();
    reader->batch->Read(absl::MakeSpan(pieces));
    for (size_t p = 0; p < pieces.size(); ++p) {
      absl::Status taken = pieces_.Take(misses_, pieces, p, take);
      if (status.ok()) status = std::move(taken);
    }
  }
  misses_.clear();
  BatchReaders().Keep(std::move(reader));
  return status;
}

}  // namespace processor
