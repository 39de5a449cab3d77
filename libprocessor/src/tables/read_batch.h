// SPDX-License-Identifier: Apache-2.0
// Reads many pieces of files at a time, past the page cache: by io_uring where the kernel permits it, otherwise by threads.
#ifndef PROCESSOR_TABLES_READ_BATCH_H_
#define PROCESSOR_TABLES_READ_BATCH_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/types/span.h"

namespace processor {

/// One piece. For a descriptor that was opened with O_DIRECT, all numbers are multiples of its alignment.
struct ReadPiece {
  int descriptor;
  uint64_t offset;
  uint32_t size;
  uint8_t* bytes;
  uint32_t got = 0;  // bytes that were read, fewer than `size` only if the file ends there or an error came
  int error = 0;     // that errno gave for the byte behind them, or 0

  /// Sets them as the kernel gives them: the bytes, or an error number below zero.
  void Set(int32_t result) {
    got = result > 0 ? static_cast<uint32_t>(result) : 0;
    error = result < 0 ? -result : 0;
  }
};

/// Runs batches of reads. One thread uses it at a time.
class ReadBatch {
 public:
  /// The most pieces that are on the way at a time.
  static constexpr size_t kMostPieces = 256;

  virtual ~ReadBatch() = default;

  /// Reads all pieces, and waits without using a CPU. Sets `got` and `error` of all.
  virtual void Read(absl::Span<ReadPiece> pieces) = 0;

  /// Returns one that uses io_uring, or null with the reason where the kernel refuses it.
  static std::unique_ptr<ReadBatch> MakeRing(std::string* why_not);
  /// Returns one that uses 32 threads of the process, which all such batches share.
  static std::unique_ptr<ReadBatch> MakeThreads();
  /// Returns the best one. The log has the reason if it is not io_uring, once for each process.
  static std::unique_ptr<ReadBatch> Make();
};

/// Reads what is missing of a piece behind `got`, with `pread`, and sets `error`. If the rest cannot be read as a whole, it
/// is read page by page, so that `got` ends at the first page that cannot be read.
void ReadRest(ReadPiece* piece);

}  // namespace processor

#endif  // PROCESSOR_TABLES_READ_BATCH_H_
