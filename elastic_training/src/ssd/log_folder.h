// SPDX-License-Identifier: Apache-2.0
// The folder of a row log besides the rows: a lock, the id of the run, and the promises of checkpoints.
//
//     lock                     locked by the process that uses the folder
//     run.json                 whose rows these are
//     promise-TOKEN.json       the files and numbers of records that a checkpoint needs
#ifndef ELASTIC_TRAINING_SSD_LOG_FOLDER_H_
#define ELASTIC_TRAINING_SSD_LOG_FOLDER_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace elastic_training {

/// A file that a promise names.
struct PromisedFile {
  uint32_t id, serial, records;
};
using LogPromise = std::vector<PromisedFile>;

class LogFolder {
 public:
  /// Makes the folder if needed, locks it and reads what it has. \throws SsdError if another process or table uses it.
  explicit LogFolder(const std::string& path);
  ~LogFolder();
  LogFolder(const LogFolder&) = delete;
  LogFolder& operator=(const LogFolder&) = delete;

  const std::string& path() const { return path_; }
  const std::string& run() const { return run_; }
  /// Promises that are on the device, by token.
  const std::map<uint64_t, LogPromise>& promises() const { return promises_; }
  /// Serial numbers of the files of rows.
  std::vector<uint32_t> Serials() const;

  /// Writes a promise so that it survives a power failure; its files must be on the device. \throws SsdError
  void Write(uint64_t token, const LogPromise& promise);
  void Remove(uint64_t token);

 private:
  std::string NameOf(uint64_t token) const;
  void WriteDurably(const std::string& name, const std::string& text) const;
  void SyncNames() const;
  void Read();

  const std::string path_;
  int lock_ = -1;
  std::string run_;
  std::map<uint64_t, LogPromise> promises_;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_SSD_LOG_FOLDER_H_
