// SPDX-License-Identifier: Apache-2.0
// The threads of the process that read files where the kernel refuses io_uring.
#ifndef PROCESSOR_TABLES_READ_THREADS_H_
#define PROCESSOR_TABLES_READ_THREADS_H_

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <memory>
#include <mutex>

#include "absl/types/span.h"
#include "src/tables/read_batch.h"
#include "src/tables/started_reads.h"

namespace processor {

/// They start with the first read and never end. Any thread may call.
class ReadThreads {
 public:
  static constexpr int kThreads = 32;

  static ReadThreads& Global();

  /// Reads all pieces, and waits.
  void Read(absl::Span<ReadPiece> pieces);
  /// Reads pieces while the caller does something else; as StartReads().
  void Start(std::shared_ptr<StartedReads> reads);

 private:
  struct Batch {
    size_t left = 0;
    std::condition_variable done;
  };
  struct Entry {
    ReadPiece* piece;
    Batch* batch;                           // whose caller waits; or
    std::shared_ptr<StartedReads> started;  // what nobody waits for
  };

  ReadThreads();
  void Run();
  void ReadNext(std::unique_lock<std::mutex>* lock);

  std::mutex mutex_;
  std::condition_variable wanted_;
  std::deque<Entry> queue_;
  int started_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_TABLES_READ_THREADS_H_
