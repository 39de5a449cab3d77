// SPDX-License-Identifier: Apache-2.0
// One file of a row log: a header of 4 KiB that tells whose it is, then records of one length.
#ifndef ELASTIC_TRAINING_SSD_LOG_FILE_H_
#define ELASTIC_TRAINING_SSD_LOG_FILE_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace elastic_training {

/// What is wrong with the folder of a log: the message names the file, what was found, and what to do.
class SsdError : public std::runtime_error {
 public:
  enum class Kind { kFull, kDamaged, kRefused, kDevice };
  SsdError(Kind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  /// The error of a system call that failed on `path`, of errno `number`.
  static SsdError OfCall(const std::string& path, const char* call, int number);
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

class LogFile {
 public:
  static constexpr size_t kHeaderBytes = 4096;
  static constexpr char kSuffix[] = ".rows";

  /// Whose file it is.
  struct Identity {
    std::string run;
    uint32_t serial;
    uint32_t record_bytes;
    uint32_t slots;
  };

  /// Makes a file with room for all its records. \throws SsdError if the device has no room; there is no file then.
  static LogFile* Create(const std::string& folder, const Identity& identity);
  /// Makes another one of a file that nobody reads any more, which is faster: its old records have another serial number.
  static LogFile* Recycle(const std::string& folder, const LogFile& old, const Identity& identity);
  /// Opens a file. \throws SsdError if it is missing, shorter than its header or of another run or table.
  /// `record_bytes` 0: any.
  static LogFile* Open(const std::string& folder, const std::string& run, uint32_t serial, uint32_t record_bytes);
  /// Removes a file that no checkpoint needs. \throws SsdError if it is of another run
  static void RemoveUnneeded(const std::string& folder, const std::string& run, uint32_t serial);
  ~LogFile();
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  static std::string NameOf(uint32_t serial);

  const std::string& path() const { return path_; }
  const Identity& identity() const { return identity_; }
  uint32_t slots() const { return identity_.slots; }
  int descriptor() const { return descriptor_; }
  int64_t offset(uint32_t slot) const {
    return static_cast<int64_t>(kHeaderBytes) + static_cast<int64_t>(slot) * identity_.record_bytes;
  }
  size_t bytes() const { return static_cast<size_t>(offset(slots())); }

  /// Writes records. \throws SsdError
  void Write(uint32_t slot, const char* records, uint32_t count);
  /// Reads records; false if the file ends before. \throws SsdError
  bool Read(uint32_t slot, char* records, uint32_t count) const;
  /// Reads what the page cache has; false if it lacks a part.
  bool ReadCached(uint32_t slot, char* records, uint32_t count) const;
  /// Where a record is in memory that the file is mapped to, for GuardedCopy only; null without.
  const char* mapped(uint32_t slot) const { return mapped_ == nullptr ? nullptr : mapped_ + offset(slot); }
  /// Whether the page cache had a record when it was written or read last.
  bool WasCached(uint32_t slot) const;
  /// Forgets that for all records: the page cache has lost some.
  void ForgetCached() const;
  /// Asks the device for records that Read will want.
  void Fetch(uint32_t slot, uint32_t count) const;
  /// Brings all that was written to the device. \throws SsdError
  void Sync();
  bool failed() const { return failed_.load() != 0; }
  void Remove();

  /// Whether a record is a row, which anybody may ask at any time.
  bool IsRow(uint32_t slot) const { return (rows_[slot / 64].load(std::memory_order_relaxed) >> slot % 64 & 1) != 0; }
  /// Whether one of some records is.
  bool HasRows(uint32_t slot, uint32_t count) const;
  /// Makes records rows that are none.
  void AddRows(uint32_t slot, uint32_t count);
  /// Makes a row a mere record; returns whether it was the last row.
  bool DropRow(uint32_t slot);
  int64_t live() const { return live_.load(std::memory_order_relaxed); }

  /// Records that are in the file, and those that have been given numbers.
  std::atomic<uint32_t> written{0};
  std::atomic<uint32_t> taken{0};

 private:
  LogFile(std::string path, int descriptor, Identity identity)
      : path_(std::move(path)),
        descriptor_(descriptor),
        identity_(std::move(identity)),
        rows_((identity_.slots + 63) / 64),
        cached_(bytes() / kPageBytes / 64 + 1) {
    Map();
  }

  static constexpr size_t kPageBytes = 4096;

  void Map();
  void WriteHeader();
  void SetCached(uint32_t slot, uint32_t count) const;

  const std::string path_;
  const int descriptor_;
  const Identity identity_;
  // A bit for each record, so that reclaiming looks for no others.
  std::vector<std::atomic<uint64_t>> rows_;
  std::atomic<int64_t> live_{0};
  const char* mapped_ = nullptr;
  // A bit for each page.
  mutable std::vector<std::atomic<uint64_t>> cached_;
  std::atomic<bool> dirty_{true};
  std::atomic<int> failed_{0};
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_SSD_LOG_FILE_H_
