// SPDX-License-Identifier: Apache-2.0
// A folder of TFRecord files, bounded in their size and number. Others may remove any of them, or the folder, at any
// time. For one thread.
#ifndef PROCESSOR_HOST_REQUEST_LOG_RECORD_FOLDER_H_
#define PROCESSOR_HOST_REQUEST_LOG_RECORD_FOLDER_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "src/host/files/file.h"

namespace processor {

class RecordFolder {
 public:
  /// The folder and the one that it is in are made with the first record; what is above them must be there.
  explicit RecordFolder(std::string path) : path_(std::move(path)) {}

  /// Appends a record: to the newest file of this object, or to a new one if that would grow beyond `max_bytes`. The
  /// oldest files beyond `max_files` go, whoever made them.
  /// \return why not, and then no part of it is there.
  absl::Status Append(std::string_view record, int64_t max_bytes, int max_files);

 private:
  absl::Status Begin(int max_files);
  absl::Status RemoveBeyond(int most);
  absl::Status Write(std::string_view framed);
  std::vector<std::string> Names() const;

  const std::string path_;
  File file_;
  int64_t size_ = 0;
  int max_files_ = 0;  // that was seen to last
};

}  // namespace processor

#endif  // PROCESSOR_HOST_REQUEST_LOG_RECORD_FOLDER_H_
