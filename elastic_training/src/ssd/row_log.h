// SPDX-License-Identifier: Apache-2.0
// An append-only log of rows in one folder, for a table whose rows do not fit into memory. The log has no index: whoever
// appends a row remembers its place, and tells when the row is gone or elsewhere.
//
// Files have up to a 64th of the rows. When they take more than 1.38 times the live rows, the one with the fewest live
// rows is reclaimed: it is read from its beginning, its live rows are appended again, to a file of their own, and it is
// removed. Each step frees as much as has been appended since the last one, so it never stops anybody.
//
// A checkpoint pins the files of an instant, and promises them when they are on the device; they stay until the promise is
// forgotten. A process that starts on the folder of one that was killed resumes a promise: records after it are no rows.
//
// Any thread may call any function. All throw SsdError, which names the file; rows that were appended stay readable.
#ifndef ELASTIC_TRAINING_SSD_ROW_LOG_H_
#define ELASTIC_TRAINING_SSD_ROW_LOG_H_

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "src/ssd/log_file.h"
#include "src/ssd/log_folder.h"
#include "src/ssd/log_writer.h"
#include "src/ssd/record.h"

namespace elastic_training {

struct LogSettings {
  std::string folder;
  /// Floats of a row.
  size_t values = 0;
  /// Most bytes of files that are not only there for checkpoints.
  uint64_t limit_bytes = UINT64_MAX;
  /// Fewest and most bytes of a file.
  size_t least_file_bytes = size_t{1} << 20, most_file_bytes = size_t{256} << 20;
};

/// How far a pass over the rows of a log has come, and some rows in the order of their places.
struct LogScan {
  /// The part of a file that was read: its rows.
  std::vector<LogPlace> places;
  std::vector<RecordHeader> headers;
  /// Values of row i; valid until the next part is read.
  const float* values(size_t i, std::vector<float>* aligned) const {
    std::memcpy(aligned->data(), records[i] + sizeof(RecordHeader), aligned->size() * sizeof(float));
    return aligned->data();
  }

  std::vector<const char*> records;
  std::vector<char> bytes;
  std::shared_ptr<LogFile> file;
  uint32_t id = 0, slot = 0;
};

class RowLog {
 public:
  struct Row {
    uint64_t key;
    uint32_t touch, count;
    uint8_t kind;
    /// [values]
    const float* values;
  };
  /// A row that reclaiming has appended again.
  struct Moved {
    uint64_t key;
    LogPlace from, to;
    bool taken;
  };
  /// Takes `to` for the place of those rows [count] that are still at `from`, and sets their `taken`; the log drops the
  /// places that are no rows then.
  using Move = std::function<void(Moved* rows, size_t count)>;

  /// Locks the folder. Files that no checkpoint needs are removed; if one does, Resume must come first.
  explicit RowLog(const LogSettings& settings);
  ~RowLog();

  /// Appends rows [count], which are live until Drop; places [count] are where they are. Either all are appended, or none.
  /// \throws SsdError if the tier is full, or what was written before has failed
  void Append(const Row* rows, size_t count, LogPlace* places);
  LogPlace Append(const Row& row) {
    LogPlace place;
    Append(&row, 1, &place);
    return place;
  }
  /// Tells that the live rows at some places [count] are gone or were appended again.
  void Drop(const LogPlace* places, size_t count);
  void Drop(LogPlace place) { Drop(&place, 1); }

  /// Reads the rows of `keys` at `places` [count] into values + i · stride, and their headers unless that is null. found[i]
  /// becomes 0 if there is no row of this key: it was moved meanwhile, so the caller looks up its place again, or the row is
  /// that of another key. `keys` null: any key. \throws SsdError if a record is damaged
  void Read(const LogPlace* places, const uint64_t* keys, size_t count, float* values, size_t stride, uint8_t* found,
            RecordHeader* headers = nullptr) const;
  /// Reads the next part of the log, in the order of files; false after the last one. Rows are missing that are appended or
  /// moved meanwhile, wait to be written, or have damaged records. \throws SsdError
  bool ReadNext(LogScan* scan) const;
  /// Whether the places of a part still mean what was read, for those that are places of rows now.
  bool IsCurrent(const LogScan& scan) const { return raw_[scan.id].load() == scan.file.get(); }
  /// Asks the device for rows that Read will want.
  void Fetch(const LogPlace* places, size_t count) const;

  /// Takes a step of reclaiming: passes up to `most` records, those of rows and others, of which `move` gets the rows.
  /// Returns how many.
  size_t Reclaim(size_t most, const Move& move);
  /// How many records the next step should take, so that space stays bounded.
  size_t Owed();

  /// Keeps the files of this instant until Forget.
  void Pin(uint64_t token);
  /// Brings what was pinned to the device: it can be resumed after a crash from here on.
  void Promise(uint64_t token);
  void Forget(uint64_t token);
  /// Returns what a checkpoint has to remember beside its token.
  const std::string& run() const { return folder_.run(); }
  /// Forgets all rows and takes those of a promise; the caller adopts their places, then ends.
  void Resume(const std::string& run, uint64_t token);
  void Adopt(LogPlace place);
  void EndResume();
  /// Whether rows of an earlier process wait for Resume.
  bool waits() const { return waits_.load(); }

  size_t record_bytes() const { return record_bytes_; }
  int64_t live() const { return live_.load(std::memory_order_relaxed); }
  nlohmann::json Stats() const;

 private:
  using FilePointer = std::shared_ptr<LogFile>;
  struct Files {
    std::array<FilePointer, kMostLogFiles> at;
  };
  using FilesPointer = std::shared_ptr<const Files>;

  /// A file that is being filled.
  struct Head {
    uint32_t id = kMostLogFiles;
    LogFile* file = nullptr;
    LogBuffer buffer;
  };

  FilesPointer files() const;
  // The following ones need mutex_.
  void SetFile(uint32_t id, FilePointer file);
  LogFile::Identity NextIdentity() const;
  void StartFile(Head* head);
  /// Appends records that encode(i, record, sum of its place) writes; *done of `count` also if it throws.
  template <typename Encode>
  void AppendTo(Head* head, size_t count, LogPlace* places, size_t* done, const Encode& encode);
  void HandOver(Head* head);
  bool IsHead(uint32_t id) const { return id == new_.id || id == moved_head_.id; }
  void Retire(uint32_t id);
  void LoadPromises();
  std::set<uint32_t> Pinned() const;
  uint64_t Bytes() const;
  double Excess() const;
  uint32_t Choose() const;
  void CheckClaimed() const;

  // The following ones need reclaim_mutex_.
  bool StartVictim();
  size_t Pass(size_t most, const Move& move);
  size_t FindRows(const LogFile& file, uint32_t count);
  void MoveRows(size_t count, const Move& move);

  bool CopyRecord(const LogFile& file, uint32_t slot, char* record) const;
  bool IsIntact(const LogFile& file, uint32_t slot, const char* record) const;
  void Check(const LogFile& file, uint32_t slot, const char* record) const;

  const LogSettings settings_;
  const size_t record_bytes_;
  LogFolder folder_;
  LogWriter writer_;

  mutable std::mutex mutex_;
  FilesPointer files_;
  std::array<std::atomic<LogFile*>, kMostLogFiles> raw_{};
  std::set<uint32_t> retired_;  // ids
  std::map<uint64_t, LogPromise> pins_;
  uint32_t next_id_ = 0, next_serial_ = 1;
  // Rows that were moved once are more likely to stay, so they get files of their own.
  Head new_, moved_head_;
  uint32_t buffer_slots_ = 0;
  std::atomic<bool> waits_{false};
  std::atomic<int64_t> live_{0};
  std::atomic<uint64_t> appended_{0}, reclaimed_files_{0}, passed_{0}, moved_{0};
  mutable std::atomic<uint64_t> read_{0}, read_device_{0};

  mutable std::mutex reclaim_mutex_;
  FilePointer victim_;
  uint32_t victim_id_ = 0, victim_slot_ = 0;
  uint64_t owed_from_ = 0;
  std::vector<char> chunk_;
  std::vector<const char*> records_;
  std::vector<Moved> moves_;
  std::vector<LogPlace> places_;
  std::set<uint32_t> damaged_;  // serial numbers
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_SSD_ROW_LOG_H_
