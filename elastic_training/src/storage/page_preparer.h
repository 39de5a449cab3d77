// SPDX-License-Identifier: Apache-2.0
// A thread of the process that has the system clear memory before rows need it. Clearing a huge page takes milliseconds on a
// busy machine, which training would otherwise spend within a call.
#ifndef ELASTIC_TRAINING_STORAGE_PAGE_PREPARER_H_
#define ELASTIC_TRAINING_STORAGE_PAGE_PREPARER_H_

#include <sys/types.h>

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>

namespace elastic_training {

class PagePreparer {
 public:
  /// Returns the one of the process, which is never destroyed: its thread may run until the process ends.
  static PagePreparer& OfProcess();

  /// Asks for the memory of mapped pages; returns at once. If it cannot be prepared, or too much waits, the pages are cleared
  /// when they are touched.
  void Prepare(char* begin, size_t bytes);
  /// Must be called before pages within this range are unmapped; waits until none of them is being prepared.
  void Forget(const char* begin, size_t bytes);

 private:
  struct Range {
    char* begin;
    size_t bytes;
  };

  void Run();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Range> waiting_;
  Range current_{nullptr, 0};
  // Of the process with the thread: a process that is forked has none.
  pid_t started_ = 0;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_STORAGE_PAGE_PREPARER_H_
