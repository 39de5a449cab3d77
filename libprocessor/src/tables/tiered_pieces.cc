// SPDX-License-Identifier: Apache-2.0
#include "src/tables/tiered_pieces.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "src/tables/table_crc.h"

namespace processor {
namespace {

// A longer piece would delay others.
constexpr uint64_t kMostPieceBytes = TieredPieces::kLeastBuffer;

}  // namespace

size_t TieredPieces::LayOut(absl::Span<const TieredMiss> misses, size_t first, size_t most, size_t most_bytes) {
  pieces_.clear();
  wanted_.clear();
  bytes_ = 0;
  for (size_t m = first; m < misses.size(); ++m) {
    const TieredRows& rows = *misses[m].rows;
    uint64_t begin = rows.OffsetOf(misses[m].number), end = begin + rows.BytesOf(misses[m].number);
    const uint64_t first_block = rows.BlockOf(begin), last_block = rows.BlockOf(end - 1);
    for (uint64_t block = first_block; block <= last_block; ++block) {
      if (rows.IsChecked(block)) continue;
      begin = std::min(begin, rows.BeginOf(block));
      end = std::max(end, rows.EndOf(block));
    }
    begin = rows.file_->Down(begin);
    end = rows.file_->Up(end);
    const bool same_file = !pieces_.empty() && misses[wanted_.back().first].rows == &rows;
    if (same_file && begin <= pieces_.back().offset + pieces_.back().size) {
      ReadPiece& piece = pieces_.back();
      const uint64_t piece_end = std::max(end, piece.offset + piece.size);
      const size_t more = static_cast<size_t>(piece_end - piece.offset) - piece.size;
      // A block that lies around others may begin before them.
      if (begin >= piece.offset &&
          (more == 0 || (piece_end - piece.offset <= kMostPieceBytes && bytes_ + more <= most_bytes))) {
        piece.size += static_cast<uint32_t>(more);
        bytes_ += more;
        wanted_.back().last = m + 1;
        continue;
      }
    }
    const size_t size = static_cast<size_t>(end - begin);
    if (pieces_.size() == most || (bytes_ + size > most_bytes && !pieces_.empty())) return m;
    pieces_.push_back({rows.file_->descriptor(), begin, static_cast<uint32_t>(size), nullptr});
    wanted_.push_back({m, m + 1});
    bytes_ += size;
  }
  return misses.size();
}

void TieredPieces::Place(uint8_t* buffer) {
  for (ReadPiece& piece : pieces_) {
    piece.bytes = buffer;
    buffer += piece.size;
  }
}

absl::Status TieredPieces::Check(TieredRows* rows, const ReadPiece& piece) {
  rows->reads_.fetch_add(1, std::memory_order_relaxed);
  rows->read_bytes_.fetch_add(piece.got, std::memory_order_relaxed);
  rows->file_->Forget(piece.offset, piece.size);
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

// Returns null for a row that the piece does not have, or of which a block is not right.
const uint8_t* TieredPieces::RowIn(const TieredRows& rows, const ReadPiece& piece, uint32_t number) {
  const uint64_t begin = rows.OffsetOf(number), end = begin + rows.BytesOf(number);
  if (end > piece.offset + piece.got || !rows.IsChecked(rows.BlockOf(begin)) ||
      !rows.IsChecked(rows.BlockOf(end - 1))) {
    return nullptr;
  }
  return piece.bytes + (begin - piece.offset);
}

// Why a piece does not have a row, or not all of a block that has to be checked for it.
absl::Status TieredPieces::Unread(const TieredRows& rows, const ReadPiece& piece, uint32_t number) {
  const uint64_t read_end = piece.offset + piece.got;
  if (piece.error == 0) {
    return rows.Named(absl::DataLossError(absl::StrCat("ends at ", read_end, ", expected row ", number)));
  }
  // The page at which reading ended may begin in the block before.
  const uint64_t block = rows.BlockOf(std::max(read_end, rows.OffsetOf(number)));
  return rows.Named(absl::DataLossError(
      absl::StrCat("block ", block, " of ", rows.num_blocks_, ": cannot be read: ", std::strerror(piece.error))));
}

}  // namespace processor
