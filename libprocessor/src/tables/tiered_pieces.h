// SPDX-License-Identifier: Apache-2.0
// Which pieces of the files of tiered tables to read for some rows, and what these pieces turn out to have.
#ifndef PROCESSOR_TABLES_TIERED_PIECES_H_
#define PROCESSOR_TABLES_TIERED_PIECES_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "src/tables/read_batch.h"
#include "src/tables/tiered_rows.h"

namespace processor {

/// A row that is in no cache.
struct TieredMiss {
  TieredRows* rows;
  uint32_t number;
  uint8_t* dst;  // of the reader: where the row goes

  bool operator<(const TieredMiss& other) const { return std::tie(rows, number) < std::tie(other.rows, other.number); }
};

/// Rows that are neighbors are in one piece, and so are all rows of a block that has to be checked. One thread uses it.
class TieredPieces {
 public:
  /// Two blocks that a row lies in, and what is read around them, fit into a buffer of this size.
  static constexpr size_t kLeastBuffer = 4 * kTableBlockBytes;

  /// Lays out pieces for misses, which must be sorted, from `first` on.
  /// \param most        of the pieces
  /// \param most_bytes  of all pieces together
  /// \return the first miss for which there was no room.
  size_t LayOut(absl::Span<const TieredMiss> misses, size_t first, size_t most, size_t most_bytes);

  /// Returns the bytes of all pieces.
  size_t bytes() const { return bytes_; }
  /// Gives the pieces memory of bytes() bytes, on a page.
  void Place(uint8_t* buffer);
  std::vector<ReadPiece>& pieces() { return pieces_; }

  /// Checks the blocks of piece `p` of `pieces`, which has been read, if nobody has before, and calls `found(m, row)` for
  /// each miss `m` that it was read for, with the bytes of the row, up to the first one that it does not have.
  /// \return DATA_LOSS for that one, which names the file and what of it is damaged or cannot be read.
  template <typename Found>
  absl::Status Take(absl::Span<const TieredMiss> misses, absl::Span<const ReadPiece> pieces, size_t p,
                    const Found& found) const {
    const ReadPiece& piece = pieces[p];
    TieredRows& rows = *misses[wanted_[p].first].rows;
    const absl::Status status = Check(&rows, piece);
    for (size_t m = wanted_[p].first; m < wanted_[p].last; ++m) {
      const uint8_t* const row = RowIn(rows, piece, misses[m].number);
      if (row == nullptr) return status.ok() ? Unread(rows, piece, misses[m].number) : status;
      found(m, row);
    }
    return absl::OkStatus();
  }

  size_t capacity_bytes() const { return pieces_.capacity() * sizeof(ReadPiece) + wanted_.capacity() * sizeof(Wanted); }

 private:
  // Misses that one piece serves.
  struct Wanted {
    size_t first, last;
  };

  static absl::Status Check(TieredRows* rows, const ReadPiece& piece);
  static const uint8_t* RowIn(const TieredRows& rows, const ReadPiece& piece, uint32_t number);
  static absl::Status Unread(const TieredRows& rows, const ReadPiece& piece, uint32_t number);

  std::vector<ReadPiece> pieces_;
  std::vector<Wanted> wanted_;
  size_t bytes_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_TABLES_TIERED_PIECES_H_
