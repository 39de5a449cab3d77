// SPDX-License-Identifier: Apache-2.0
#include "src/tables/table_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#ifndef MADV_POPULATE_READ  // Linux 5.14
#define MADV_POPULATE_READ 22
#endif

namespace processor {
namespace {

// While pages are mapped or given back, a thread of the process that maps or unmaps anything waits, and on a busy
// machine this one has little time. So it lets others through often.
constexpr size_t kSlice = size_t{4} << 20;

const char* WhatToDo(absl::StatusCode code, const FileTerms& terms) {
  switch (code) {
    case absl::StatusCode::kPermissionDenied:
      return "let the user of this process read it";
    case absl::StatusCode::kFailedPrecondition:
      return terms.if_newer;
    case absl::StatusCode::kUnavailable:
      return "look at the disk and the system's log, then load again";
    case absl::StatusCode::kResourceExhausted:
      return "give the process more memory or address space";
    default:
      return terms.if_damaged;
  }
}

}  // namespace

void UnmapInSlices(uint8_t* data, size_t size) {
  // From the end, so that what is left is still one mapping that begins at `data`.
  while (size > 0) {
    const size_t slice = size % kSlice == 0 ? kSlice : size % kSlice;
    size -= slice;
    munmap(data + size, slice);
  }
}

TableMapping::~TableMapping() { UnmapInSlices(data_, size_); }

TableMapping::TableMapping(TableMapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_(std::exchange(other.size_, 0)) {}

TableMapping& TableMapping::operator=(TableMapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  return *this;
}

void PrefaultPages(uint8_t* data, size_t size) {
  for (size_t at = 0;; at += kSlice) {
    if (at >= size) return;
    if (madvise(data + at, std::min(kSlice, size - at), MADV_POPULATE_READ) == 0) continue;
    if (errno != EINVAL) return;  // memory or disk will not have it; requests may still find what they need
    break;
  }
  constexpr size_t kPage = 4096;
  for (size_t at = 0; at < size; at += kPage) static_cast<void>(static_cast<const volatile uint8_t*>(data)[at]);
}

TableFile::~TableFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status TableFile::Open() {
  // A pipe would wait for its writer; it is refused below.
  descriptor_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (descriptor_ < 0) {
    switch (errno) {
      case ENOENT:
      case ENOTDIR:
        return Named(absl::NotFoundError(absl::StrCat("no such file, expected ", terms_.expected)));
      case EACCES:
      case EPERM:
        return Named(absl::PermissionDeniedError("not readable"));
      default:
        return Named(absl::UnavailableError(absl::StrCat("cannot be opened: ", std::strerror(errno))));
    }
  }
  struct stat found;
  if (fstat(descriptor_, &found) != 0) {
    return Named(absl::UnavailableError(absl::StrCat("cannot be read: ", std::strerror(errno))));
  }
  if (!S_ISREG(found.st_mode)) {
    return Named(absl::InvalidArgumentError(
        absl::StrCat(S_ISDIR(found.st_mode) ? "a folder" : "no regular file", ", expected ", terms_.expected)));
  }
  identity_ = {static_cast<uint64_t>(found.st_dev), static_cast<uint64_t>(found.st_ino),
               static_cast<uint64_t>(found.st_size),
               int64_t{found.st_mtim.tv_sec} * 1000000000 + found.st_mtim.tv_nsec};
  return absl::OkStatus();
}

absl::Status TableFile::Read(uint64_t offset, size_t size, uint8_t* bytes) const {
  while (size > 0) {
    const ssize_t got = pread(descriptor_, bytes, size, static_cast<off_t>(offset));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return Named(absl::UnavailableError(absl::StrCat("cannot be read: ", std::strerror(errno))));
    if (got == 0) {
      return Named(absl::DataLossError(absl::StrCat("ends at ", offset, ", expected ", identity_.size, " bytes")));
    }
    offset += static_cast<uint64_t>(got);
    bytes += got;
    size -= static_cast<size_t>(got);
  }
  return absl::OkStatus();
}

absl::Status TableFile::Map(TableMapping* mapping) const {
  TableMapping mapped;
  void* address = mmap(nullptr, identity_.size, PROT_READ, MAP_SHARED, descriptor_, 0);
  if (address == MAP_FAILED) {
    return Named(
        absl::ResourceExhaustedError(absl::StrCat(identity_.size, " bytes cannot be mapped: ", std::strerror(errno))));
  }
  mapped.data_ = static_cast<uint8_t*>(address);
  mapped.size_ = identity_.size;
  // Fewer translations to look up, where the file system has large pages. Advice: an error changes nothing.
  madvise(address, mapped.size_, MADV_HUGEPAGE);
  *mapping = std::move(mapped);
  return absl::OkStatus();
}

void TableFile::Forget() const { posix_fadvise(descriptor_, 0, 0, POSIX_FADV_DONTNEED); }

absl::Status NamedByFile(const absl::Status& status, const std::string& path, const FileTerms& terms) {
  if (status.ok()) return status;
  return absl::Status(status.code(), absl::StrCat(terms.noun, " '", path, "': ", status.message(), "; ",
                                                  WhatToDo(status.code(), terms)));
}

}  // namespace processor
