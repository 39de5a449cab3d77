// SPDX-License-Identifier: Apache-2.0
// A library to preload: reads by `pread` fail as those of a device do, last until they are let go, or are disturbed as signals
// and a kernel without memory disturb them. It refuses io_uring, whose reads pass by the C library.
#include <dlfcn.h>
#include <errno.h>
#include <stdarg.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

namespace {

struct Fault {
  std::atomic<ino_t> inode{0};
  std::atomic<long> begin{0}, end{0};
  std::atomic<bool> disturbs{false};
  std::atomic<long> reads{0};
};

Fault g_fault;

// Reads of the file wait here.
struct Gate {
  std::mutex mutex;
  std::condition_variable open;
  bool is_closed = false;
  long waiting = 0;
};

Gate g_gate;

void PassGate() {
  std::unique_lock<std::mutex> lock(g_gate.mutex);
  ++g_gate.waiting;
  g_gate.open.wait(lock, [] { return !g_gate.is_closed; });
  --g_gate.waiting;
}

template <typename Function>
Function Next(const char* name) {
  return reinterpret_cast<Function>(dlsym(RTLD_NEXT, name));
}

ssize_t Read(int file, void* bytes, size_t size, off_t offset) {
  static const auto read = Next<ssize_t (*)(int, void*, size_t, off_t)>("pread64");
  struct stat found;
  if (g_fault.inode == 0 || fstat(file, &found) != 0 || found.st_ino != g_fault.inode) {
    return read(file, bytes, size, offset);
  }
  PassGate();
  const long number = g_fault.reads.fetch_add(1);
  if (offset < g_fault.end && offset + static_cast<off_t>(size) > g_fault.begin) {
    errno = EIO;
    return -1;
  }
  if (g_fault.disturbs && number % 3 < 2) {
    errno = number % 3 == 0 ? EINTR : EAGAIN;
    return -1;
  }
  // Half of what was asked for, but whole pages.
  if (g_fault.disturbs && size > 4096) size = (size / 2 + 4095) / 4096 * 4096;
  return read(file, bytes, size, offset);
}

}  // namespace

extern "C" {

/// Lets reads of a file that touch the bytes from `begin` to `end` fail with EIO, and disturbs others if `disturbs` is not 0.
/// Returns the number of its reads since the last call.
__attribute__((visibility("default"))) long fail_reads(const char* path, long begin, long end, int disturbs) {
  struct stat found;
  if (stat(path, &found) != 0) return -1;
  g_fault.inode = found.st_ino;
  g_fault.begin = begin;
  g_fault.end = end;
  g_fault.disturbs = disturbs != 0;
  return g_fault.reads.exchange(0);
}

/// Holds reads of the file up if `hold` is 1, lets them go if it is 0, and else changes nothing. Returns the number of those
/// that wait.
__attribute__((visibility("default"))) long hold_reads(int hold) {
  std::lock_guard<std::mutex> lock(g_gate.mutex);
  if (hold == 0 || hold == 1) g_gate.is_closed = hold == 1;
  g_gate.open.notify_all();
  return g_gate.waiting;
}

__attribute__((visibility("default"))) ssize_t pread(int file, void* bytes, size_t size, off_t offset) {
  return Read(file, bytes, size, offset);
}
__attribute__((visibility("default"))) ssize_t pread64(int file, void* bytes, size_t size, off_t offset) {
  return Read(file, bytes, size, offset);
}

__attribute__((visibility("default"))) long syscall(long number, ...) {
  static const auto call = Next<long (*)(long, long, long, long, long, long, long)>("syscall");
  if (number == SYS_io_uring_setup) {
    errno = EPERM;
    return -1;
  }
  va_list list;
  va_start(list, number);
  long values[6];
  for (long& value : values) value = va_arg(list, long);
  va_end(list);
  return call(number, values[0], values[1], values[2], values[3], values[4], values[5]);
}
}
