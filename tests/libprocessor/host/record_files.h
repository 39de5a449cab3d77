// SPDX-License-Identifier: Apache-2.0
// Files of TFRecords, as TensorFlow reads them.
#ifndef PROCESSOR_TESTS_HOST_RECORD_FILES_H_
#define PROCESSOR_TESTS_HOST_RECORD_FILES_H_

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/lib/io/record_reader.h"
#include "tensorflow/core/platform/env.h"

namespace processor {

/// Names of the files of a folder, sorted; none if it is not there.
inline std::vector<std::string> FilesIn(const std::string& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(folder, error)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

/// The records of a file; "damaged" after the last if it does not end with one.
inline std::vector<std::string> RecordsOf(const std::string& path) {
  std::unique_ptr<tensorflow::RandomAccessFile> file;
  if (!tensorflow::Env::Default()->NewRandomAccessFile(path, &file).ok()) return {"damaged"};
  tensorflow::io::SequentialRecordReader reader(file.get());
  std::vector<std::string> records;
  for (tensorflow::tstring record;;) {
    const absl::Status status = reader.ReadRecord(&record);
    if (absl::IsOutOfRange(status)) return records;
    records.push_back(status.ok() ? std::string(record) : "damaged");
    if (!status.ok()) return records;
  }
}

/// Those of all files of a folder.
inline std::vector<std::string> RecordsIn(const std::string& folder) {
  std::vector<std::string> all;
  for (const std::string& name : FilesIn(folder)) {
    for (std::string& record : RecordsOf(folder + "/" + name)) all.push_back(std::move(record));
  }
  return all;
}

}  // namespace processor

#endif  // PROCESSOR_TESTS_HOST_RECORD_FILES_H_
