// SPDX-License-Identifier: Apache-2.0
#include "src/host/request_log/record_folder.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tensorflow/core/lib/io/record_writer.h"

namespace processor {
namespace {

constexpr std::string_view kSuffix = ".tfrecord";
constexpr size_t kDigits = 16;
constexpr int64_t kLastName = 9999999999999999;

using tensorflow::io::RecordWriter;

int64_t WallClockUs() {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1000000 + now.tv_nsec / 1000;
}

bool IsOurs(std::string_view name) {
  return name.size() == kDigits + kSuffix.size() && absl::EndsWith(name, kSuffix) &&
         std::all_of(name.begin(), name.begin() + kDigits,
                     [](char c) { return absl::ascii_isdigit(static_cast<unsigned char>(c)); });
}

std::string Framed(std::string_view record) {
  std::string framed(RecordWriter::kHeaderSize + record.size() + RecordWriter::kFooterSize, '\0');
  RecordWriter::PopulateHeader(framed.data(), record.data(), record.size());
  record.copy(framed.data() + RecordWriter::kHeaderSize, record.size());
  RecordWriter::PopulateFooter(framed.data() + RecordWriter::kHeaderSize + record.size(), record.data(), record.size());
  return framed;
}

absl::Status MakeFolder(const std::string& path) {
  if (mkdir(path.c_str(), 0750) == 0 || errno == EEXIST) return absl::OkStatus();
  return FileError(path, "cannot be made", errno);
}

}  // namespace

absl::Status RecordFolder::Append(std::string_view record, int64_t max_bytes, int max_files) {
  const std::string framed = Framed(record);
  struct stat found;
  if (file_.is_open()) {
    // Records written to a removed file could not be read.
    if (fstat(file_.get(), &found) != 0 || found.st_nlink == 0) {
      file_.Close();
    } else {
      size_ = found.st_size;
    }
  }
  const auto bytes = static_cast<int64_t>(framed.size());
  if (file_.is_open() && size_ > 0 && size_ + bytes > max_bytes) file_.Close();
  if (!file_.is_open()) {
    if (absl::Status s = Begin(max_files); !s.ok()) return s;
  } else if (max_files < max_files_) {
    if (absl::Status s = RemoveBeyond(max_files); !s.ok()) return s;
  }
  max_files_ = max_files;
  return Write(framed);
}

absl::Status RecordFolder::Begin(int max_files) {
  if (absl::Status s = MakeFolder(std::filesystem::path(path_).parent_path()); !s.ok()) return s;
  if (absl::Status s = MakeFolder(path_); !s.ok()) return s;
  // Old files are removed first, so that the limit is never exceeded.
  if (absl::Status s = RemoveBeyond(max_files - 1); !s.ok()) return s;
  // Names rise even if the clock is set back, so the smallest name is the oldest file.
  int64_t newest = 0;
  const std::vector<std::string> names = Names();
  if (!names.empty() && !absl::SimpleAtoi(names.back().substr(0, kDigits), &newest)) newest = 0;
  const int64_t began = std::min(std::max(WallClockUs(), newest + 1), kLastName);
  const std::string path = absl::StrFormat("%s/%0*d%s", path_, static_cast<int>(kDigits), began, kSuffix);
  File file(open(path.c_str(), O_WRONLY | O_APPEND | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW, 0640));
  if (!file.is_open()) return FileError(path_, "no file can be made in it", errno);
  file_ = std::move(file);
  size_ = 0;
  return absl::OkStatus();
}

absl::Status RecordFolder::RemoveBeyond(int most) {
  const std::vector<std::string> names = Names();
  const size_t surplus = names.size() - std::min(names.size(), static_cast<size_t>(most));
  for (size_t i = 0; i < surplus; ++i) {
    if (unlink(absl::StrCat(path_, "/", names[i]).c_str()) != 0 && errno != ENOENT) {
      return FileError(path_, "the oldest file cannot be removed", errno);
    }
  }
  return absl::OkStatus();
}

absl::Status RecordFolder::Write(std::string_view framed) {
  ssize_t written;
  do {
    written = write(file_.get(), framed.data(), framed.size());
  } while (written < 0 && errno == EINTR);
  if (written == static_cast<ssize_t>(framed.size())) {
    size_ += written;
    return absl::OkStatus();
  }
  // A disk with room for a part of the record returns no error.
  const int error = written < 0 ? errno : ENOSPC;
  // Records after a partial one could not be read.
  if (written > 0 && ftruncate(file_.get(), static_cast<off_t>(size_)) != 0) file_.Close();
  return FileError(path_, "a record cannot be written", error);
}

std::vector<std::string> RecordFolder::Names() const {
  std::vector<std::string> names;
  std::error_code error;
  std::filesystem::directory_iterator entry(path_, error);
  for (; !error && entry != std::filesystem::directory_iterator(); entry.increment(error)) {
    const std::filesystem::path name = entry->path().filename();
    if (IsOurs(name.native())) names.push_back(name.native());
  }
  std::sort(names.begin(), names.end());
  return names;
}

}  // namespace processor
