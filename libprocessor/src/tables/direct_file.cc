// SPDX-License-Identifier: Apache-2.0
#include "src/tables/direct_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "src/base/log.h"

#ifndef STATX_DIOALIGN  // Linux 6.1
#define STATX_DIOALIGN 0x2000U
#endif

namespace processor {
namespace {

constexpr uint32_t kUsualAlignment = 4096;

// The members of `struct statx` up to those of STATX_DIOALIGN, which older headers do not have.
struct StatxAlignment {
  uint32_t mask;
  uint8_t before[148];
  uint32_t memory, offset;
  uint8_t behind[96];
};
static_assert(sizeof(StatxAlignment) == 256);

// Returns what the file system asks of reads; 4096 if it does not tell.
uint32_t AlignmentOf(int descriptor) {
  StatxAlignment found = {};
  if (syscall(SYS_statx, descriptor, "", AT_EMPTY_PATH, STATX_DIOALIGN, &found) != 0) return kUsualAlignment;
  if ((found.mask & STATX_DIOALIGN) == 0 || found.memory == 0 || found.offset == 0) return kUsualAlignment;
  const uint32_t alignment = std::max(found.memory, found.offset);
  return (alignment & (alignment - 1)) == 0 && alignment <= kUsualAlignment ? alignment : kUsualAlignment;
}

}  // namespace

absl::Status DirectFile::Open(const TableFile& file, std::unique_ptr<const DirectFile>* direct) {
  std::unique_ptr<DirectFile> opened(new DirectFile);
  opened->descriptor_ = open(file.path().c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT);
  opened->is_direct_ = opened->descriptor_ >= 0;
  if (!opened->is_direct_ && errno == EINVAL) {
    opened->descriptor_ = open(file.path().c_str(), O_RDONLY | O_CLOEXEC);
    Log(Severity::kWarning, absl::StrCat("table '", file.path(),
                                         "': its file system has no O_DIRECT; rows are read through the page cache"));
  }
  struct stat found = {};
  if (opened->descriptor_ < 0 || fstat(opened->descriptor_, &found) != 0) {
    return file.Named(absl::UnavailableError(absl::StrCat("cannot be opened: ", std::strerror(errno))));
  }
  if (found.st_dev != file.identity().device || found.st_ino != file.identity().inode) {
    return file.Named(absl::UnavailableError("another file now, expected the one that was opened first"));
  }
  if (opened->is_direct_) opened->alignment_ = AlignmentOf(opened->descriptor_);
  // Read-ahead would read rows that nobody asked for.
  if (!opened->is_direct_) posix_fadvise(opened->descriptor_, 0, 0, POSIX_FADV_RANDOM);
  *direct = std::move(opened);
  return absl::OkStatus();
}

DirectFile::~DirectFile() {
  if (descriptor_ >= 0) close(descriptor_);
}

void DirectFile::Forget(uint64_t offset, uint64_t size) const {
  if (is_direct_) return;
  posix_fadvise(descriptor_, static_cast<off_t>(offset), static_cast<off_t>(size), POSIX_FADV_DONTNEED);
}

}  // namespace processor
