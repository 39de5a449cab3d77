// SPDX-License-Identifier: Apache-2.0
// A folder of TFRecord files that are bounded in size and number. Other processes may remove any of them, or the
// folder, at any time.
#ifndef PROCESSOR_HOST_REQUEST_LOG_RECORD_FOLDER_H_
#define PROCESSOR_HOST_REQUEST_LOG_RECORD_FOLDER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "src/host/files/file.h"

namespace processor {

/// For one thread. The log of a model owns it.
class RecordFolder {
 public:
  /// The folder and its parent are made with the first record; the folders above them must exist.
  explicit RecordFolder(std::string path) : path_(std::move(path)) {}

  /// Appends a record to the newest file of this object, or to a new one if that would grow beyond `max_bytes`. Removes
  /// the oldest files beyond `max_files`, including those of other processes.
  /// \return the error of the file system; no part of the record is written then.
  absl::Status Append(std::string_view record, int64_t max_bytes, int max_files);

 private:
  absl::Status Begin(int max_files);
  absl::Status RemoveBeyond(int most);
  absl::Status Write(std::string_view framed);
  std::vector<std::string> Names() const;

  const std::string path_;
  File file_;
  int64_t size_ = 0;
  int max_files_ = 0;  // the limit that was enforced last
};

}  // namespace processor

#endif  // PROCESSOR_HOST_REQUEST_LOG_RECORD_FOLDER_H_
