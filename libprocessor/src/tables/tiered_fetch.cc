// SPDX-License-Identifier: Apache-2.0
#include "src/tables/tiered_fetch.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <new>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/huge_memory.h"
#include "src/base/kept_objects.h"
#include "src/tables/table_crc.h"

namespace processor {
namespace {

// What is read at a time: a hundred blocks that have not been checked, or more pieces than a device works at.
constexpr size_t kReadBufferBytes = size_t{8} << 20;
// A longer piece would delay others. Two blocks that a row lies in, and what is read around them, must fit.
constexpr uint64_t kMostPieceBytes = 4 * kTableBlockBytes;

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

void TieredFetch::Add(TieredRows* rows, absl::Span<const uint32_t> numbers, uint8_t* dst) {
  if (missing_.size() < numbers.size()) missing_.resize(numbers.size());
  size_t lookups = 0;
  for (const uint32_t number : numbers) lookups += number < rows->num_rows_;
  const size_t count = rows->cache_->Get(numbers, rows->num_rows_, rows->stride_, dst, missing_.data());
  for (size_t i = 0; i < count; ++i) {
    misses_.push_back({rows, numbers[missing_[i]], dst + size_t{missing_[i]} * rows->stride_});
  }
  rows->lookups_.fetch_add(lookups, std::memory_order_relaxed);
  rows->misses_.fetch_add(count, std::memory_order_relaxed);
}

absl::Status TieredFetch::Finish() {
  if (misses_.empty()) return absl::OkStatus();
  std::unique_ptr<BatchReader> reader;
  try {
    reader = BatchReaders().Take();
  } catch (const std::bad_alloc&) {
    misses_.clear();
    return absl::ResourceExhaustedError("tiered tables: no memory to read rows");
  }
  buffer_ = reader->buffer.data();
  // Rows that are neighbors are read together, and a row once.
  std::sort(misses_.begin(), misses_.end(),
            [](const Miss& a, const Miss& b) { return std::tie(a.rows, a.number) < std::tie(b.rows, b.number); });
  absl::Status status;
  for (size_t first = 0; first < misses_.size() && status.ok();) {
    first = AddPieces(first);
    reader->batch->Read(absl::MakeSpan(pieces_));
    for (size_t p = 0; p < pieces_.size(); ++p) {
      absl::Status taken = TakePiece(pieces_[p], wanted_[p]);
      if (status.ok()) status = std::move(taken);
    }
  }
  misses_.clear();
  BatchReaders().Keep(std::move(reader));
  return status;
}

// Lays out as many pieces as there is room for, from a miss on. Returns the first miss that has to wait.
size_t TieredFetch::AddPieces(size_t first) {
  pieces_.clear();
  wanted_.clear();
  size_t filled = 0;
  for (size_t m = first; m < misses_.size(); ++m) {
    const TieredRows& rows = *misses_[m].rows;
    uint64_t begin = rows.OffsetOf(misses_[m].number), end = begin + rows.row_bytes_;
    const uint64_t first_block = rows.BlockOf(begin), last_block = rows.BlockOf(end - 1);
    for (uint64_t block = first_block; block <= last_block; ++block) {
      if (rows.IsChecked(block)) continue;
      begin = std::min(begin, rows.BeginOf(block));
      end = std::max(end, rows.EndOf(block));
    }
    begin = rows.file_->Down(begin);
    end = rows.file_->Up(end);
    const bool same_file = !pieces_.empty() && misses_[wanted_.back().first].rows == &rows;
    if (same_file && begin <= pieces_.back().offset + pieces_.back().size) {
      ReadPiece& piece = pieces_.back();
      const uint64_t piece_end = std::max(end, piece.offset + piece.size);
      const size_t more = static_cast<size_t>(piece_end - piece.offset) - piece.size;
      // A block that lies around others may begin before them.
      if (begin >= piece.offset &&
          (more == 0 || (piece_end - piece.offset <= kMostPieceBytes && filled + more <= kReadBufferBytes))) {
        piece.size += static_cast<uint32_t>(more);
        filled += more;
        wanted_.back().last = m + 1;
        continue;
      }
    }
    const size_t size = static_cast<size_t>(end - begin);
    if (pieces_.size() == ReadBatch::kMostPieces || (filled + size > kReadBufferBytes && !pieces_.empty())) return m;
    pieces_.push_back({rows.file_->descriptor(), begin, static_cast<uint32_t>(size), buffer_ + filled});
    wanted_.push_back({m, m + 1});
    filled += size;
  }
  return misses_.size();
}

absl::Status TieredFetch::CheckBlocks(TieredRows* rows, const ReadPiece& piece) {
  const uint64_t end = piece.offset + piece.got;
  absl::Status status;
  uint64_t block = piece.offset <= kTableHeaderBytes ? 0 : rows->BlockOf(piece.offset + kTableBlockBytes - 1);
  for (; block < rows->num_blocks_ && rows->EndOf(block) <= end; ++block) {
    if (rows->IsChecked(block)) continue;
    const uint64_t begin = rows->BeginOf(block);
    const size_t size = static_cast<size_t>(rows->EndOf(block) - begin);
    if (ExtendTableCrc(0, piece.bytes + (begin - piece.offset), size) == rows->checksums_[block]) {
      rows->SetChecked(block);
      continue;
    }
    rows->bad_blocks_.fetch_add(1, std::memory_order_relaxed);
    if (status.ok()) status = rows->BadBlock(block);
  }
  return status;
}

absl::Status TieredFetch::TakePiece(const ReadPiece& piece, const Wanted& wanted) {
  TieredRows& rows = *misses_[wanted.first].rows;
  rows.reads_.fetch_add(1, std::memory_order_relaxed);
  rows.read_bytes_.fetch_add(piece.got, std::memory_order_relaxed);
  rows.file_->Forget(piece.offset, piece.size);
  const absl::Status status = CheckBlocks(&rows, piece);
  for (size_t m = wanted.first; m < wanted.last; ++m) {
    const Miss& miss = misses_[m];
    const uint64_t begin = rows.OffsetOf(miss.number), end = begin + rows.row_bytes_;
    if (end > piece.offset + piece.got || !rows.IsChecked(rows.BlockOf(begin)) ||
        !rows.IsChecked(rows.BlockOf(end - 1))) {
      return status.ok() ? Unread(rows, piece, miss.number) : status;
    }
    const uint8_t* const row = piece.bytes + (begin - piece.offset);
    std::memcpy(miss.dst, row, rows.row_bytes_);
    if (m == wanted.first || misses_[m - 1].number != miss.number) rows.cache_->Offer(miss.number, row);
  }
  return absl::OkStatus();
}

// Why a piece does not have a row, or not all of a block that has to be checked for it.
absl::Status TieredFetch::Unread(const TieredRows& rows, const ReadPiece& piece, uint32_t row) {
  const uint64_t read_end = piece.offset + piece.got;
  if (piece.error == 0) {
    return rows.Named(absl::DataLossError(absl::StrCat("ends at ", read_end, ", expected row ", row)));
  }
  // The page at which reading ended may begin in the block before.
  const uint64_t block = rows.BlockOf(std::max(read_end, rows.OffsetOf(row)));
  return rows.Named(absl::DataLossError(
      absl::StrCat("block ", block, " of ", rows.num_blocks_, ": cannot be read: ", std::strerror(piece.error))));
}

}  // namespace processor
