// SPDX-License-Identifier: Apache-2.0
// Reads of files for which no thread waits: one thread of the process gives those of all requests to io_uring, so that a
// device has the reads of many requests at a time. Where the kernel refuses io_uring, the threads of ReadBatch read.
#ifndef PROCESSOR_TABLES_STARTED_READS_H_
#define PROCESSOR_TABLES_STARTED_READS_H_

#include <cstddef>
#include <memory>
#include <vector>

#include "src/tables/read_batch.h"

namespace processor {

/// Pieces that are being read. Whoever reads them shares the object until they have ended, because the kernel writes into
/// their memory.
class StartedReads {
 public:
  virtual ~StartedReads() = default;

  /// Called once all reads have ended, on a thread that reads for others too: it must not wait. A piece may have fewer bytes
  /// than it asks for, with or without an error, and is not tried again.
  virtual void Finished() noexcept = 0;

  std::vector<ReadPiece> pieces;

 private:
  friend class ReadThreads;
  friend class ReadQueue;
  size_t left_ = 0;  // pieces that are not read yet
};

/// Starts the reads; Finished() is called exactly once, perhaps before this returns.
void StartReads(std::shared_ptr<StartedReads> reads);

}  // namespace processor

#endif  // PROCESSOR_TABLES_STARTED_READS_H_
