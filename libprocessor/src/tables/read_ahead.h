// SPDX-License-Identifier: Apache-2.0
// Reads large parts of a file in order, past the page cache, while the one who uses them works on what came before.
#ifndef PROCESSOR_TABLES_READ_AHEAD_H_
#define PROCESSOR_TABLES_READ_AHEAD_H_

#include <cstddef>
#include <cstdint>
#include <future>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "src/base/huge_memory.h"
#include "src/tables/direct_file.h"
#include "src/tables/read_batch.h"
#include "src/tables/table_file.h"

namespace processor {

/// A part of a file.
struct FilePart {
  uint64_t begin, end;
};

/// One thread uses it. It reads batches of some megabytes, two of which are in memory.
class ReadAhead {
 public:
  /// Begins to read.
  /// \param parts  in the order of the file, inside the file, none empty; `file` and `direct` must outlive the object
  /// Throws std::bad_alloc.
  ReadAhead(const TableFile& file, const DirectFile& direct, std::vector<FilePart> parts);
  ~ReadAhead();
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  /// Gives the next bytes of the parts, which must be at `at`: as many as there are in memory, but at most `most`. They stay
  /// up to the next call. Stretches end only at the end of a part, after `most` bytes, or at multiples of kStretchBytes.
  /// \return DATA_LOSS if the file is too short, UNAVAILABLE if it cannot be read.
  absl::Status Next(uint64_t at, uint64_t most, absl::Span<const uint8_t>* bytes);

  static constexpr size_t kStretchBytes = size_t{4} << 20;

 private:
  // What is read at a time, and then used.
  struct Batch {
    HugeMemory memory;
    FilePart part = {0, 0};  // empty: nothing to read
    std::vector<ReadPiece> pieces;
    std::future<void> reading;
  };

  void Begin(Batch* batch);
  absl::Status Finish(Batch* batch);

  const TableFile& file_;
  const DirectFile& direct_;
  const std::vector<FilePart> parts_;
  size_t part_ = 0;     // of what is to be read next,
  uint64_t begin_ = 0;  // and where
  std::unique_ptr<ReadBatch> reads_;
  Batch batches_[2];
  size_t current_ = 1;
};

}  // namespace processor

#endif  // PROCESSOR_TABLES_READ_AHEAD_H_
