// SPDX-License-Identifier: Apache-2.0
// The thread of a row log that writes: training hands records over and goes on. It also makes the next file ahead, and
// removes files, since both take milliseconds.
#ifndef ELASTIC_TRAINING_SSD_LOG_WRITER_H_
#define ELASTIC_TRAINING_SSD_LOG_WRITER_H_

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "src/ssd/log_file.h"

namespace elastic_training {

/// Records on their way into a file.
struct LogBuffer {
  std::shared_ptr<LogFile> file;
  uint32_t first = 0, count = 0;
  std::unique_ptr<char[]> bytes;
};

class LogWriter {
 public:
  explicit LogWriter(std::string folder);
  /// Writes what it has, if the device takes it.
  ~LogWriter();

  /// Throws what the thread has met last; it tries again, so a later call may succeed. \throws SsdError
  void ThrowError() const {
    if (failed_.load(std::memory_order_relaxed)) Throw();
  }
  /// Returns memory for records, which comes back with Add.
  std::unique_ptr<char[]> TakeMemory(size_t bytes);
  /// Takes records over; waits while there are many, unless the device fails.
  void Add(LogBuffer buffer);
  /// Copies a record that has not been written; false if it has been.
  bool Copy(const LogFile& file, uint32_t slot, char* record) const;
  /// Waits until all is written. \throws SsdError
  void Flush();

  /// Has a file made; TakeFile returns it, or null if it is not ready.
  void AskFile(const LogFile::Identity& identity);
  std::shared_ptr<LogFile> TakeFile();
  /// Removes a file, or makes the next one of it.
  void Remove(std::shared_ptr<LogFile> file);

 private:
  void Throw() const;
  void Run();
  void WriteFront(std::unique_lock<std::mutex>* lock);
  void MakeFile(std::unique_lock<std::mutex>* lock);
  std::shared_ptr<LogFile> TakeUnread(const LogFile::Identity* like);

  const std::string folder_;
  mutable std::mutex mutex_;
  std::condition_variable work_, done_;
  std::deque<LogBuffer> queue_;
  // Memory of buffers that were written: new memory would be cleared by the system.
  std::vector<std::unique_ptr<char[]>> spare_;
  std::vector<std::shared_ptr<LogFile>> removed_;
  std::optional<LogFile::Identity> asked_;
  std::shared_ptr<LogFile> made_;
  std::optional<SsdError> error_;
  std::atomic<bool> failed_{false};
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_SSD_LOG_WRITER_H_
