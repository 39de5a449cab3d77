// SPDX-License-Identifier: Apache-2.0
#include "src/ssd/guarded_copy.h"

#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cerrno>

namespace elastic_training {

GuardedCopy* GuardedCopy::OfThread() {
  thread_local GuardedCopy copy;
  return copy.memory_ == nullptr ? nullptr : &copy;
}

GuardedCopy::GuardedCopy() {
  file_ = memfd_create("rows", MFD_CLOEXEC);
  if (file_ < 0 || ftruncate(file_, kMostBytes) != 0) return;
  void* const mapped = mmap(nullptr, kMostBytes, PROT_READ, MAP_SHARED, file_, 0);
  if (mapped != MAP_FAILED) memory_ = static_cast<char*>(mapped);
}

GuardedCopy::~GuardedCopy() {
  if (memory_ != nullptr) munmap(memory_, kMostBytes);
  if (file_ >= 0) close(file_);
}

const char* GuardedCopy::Copy(const iovec* parts, size_t count, size_t bytes) {
  ssize_t written = -1;
  do {
    written = pwritev(file_, parts, static_cast<int>(count), 0);
  } while (written < 0 && errno == EINTR);
  return written == static_cast<ssize_t>(bytes) ? memory_ : nullptr;
}

long MajorFaults() {
  rusage usage;
  return getrusage(RUSAGE_THREAD, &usage) == 0 ? usage.ru_majflt : 0;
}

}  // namespace elastic_training
