// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/follow/folder_watch.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstring>
#include <thread>
#include <utility>

namespace processor {

FolderWatch::FolderWatch(std::string folder)
    : folder_(std::move(folder)),
      notify_(inotify_init1(IN_NONBLOCK | IN_CLOEXEC)),
      wake_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  Watch();
}

FolderWatch::~FolderWatch() {
  if (notify_ >= 0) close(notify_);
  if (wake_ >= 0) close(wake_);
}

void FolderWatch::Watch() {
  if (notify_ < 0 || watch_ >= 0) return;
  watch_ = inotify_add_watch(notify_, folder_.c_str(), IN_CREATE | IN_MOVED_TO | IN_CLOSE_WRITE | IN_ONLYDIR);
}

void FolderWatch::Empty(int descriptor) {
  char bytes[4096];
  while (read(descriptor, bytes, sizeof bytes) > 0) {
  }
}

bool FolderWatch::Wait(std::chrono::milliseconds most) {
  // The folder may have been removed and made again since: the kernel then says that it ignores the watch.
  Watch();
  pollfd files[] = {{wake_, POLLIN, 0}, {notify_, POLLIN, 0}};
  if (wake_ < 0) {
    std::this_thread::sleep_for(most);
    return false;
  }
  const nfds_t count = notify_ < 0 ? 1 : 2;
  const auto timeout = static_cast<int>(std::clamp<int64_t>(most.count(), 0, 1 << 30));
  if (poll(files, count, timeout) <= 0) return false;
  if ((files[0].revents & POLLIN) != 0) Empty(wake_);
  if (count < 2 || (files[1].revents & POLLIN) == 0) return true;
  alignas(inotify_event) char bytes[4096];
  for (ssize_t size; (size = read(notify_, bytes, sizeof bytes)) > 0;) {
    for (ssize_t at = 0; at < size;) {
      inotify_event event;
      std::memcpy(&event, bytes + at, sizeof event);
      if ((event.mask & IN_IGNORED) != 0) watch_ = -1;
      at += static_cast<ssize_t>(sizeof event + event.len);
    }
  }
  return true;
}

void FolderWatch::Wake() noexcept {
  const uint64_t once = 1;
  // It cannot fail but for a counter that is full, and then a wake-up is waiting already.
  if (wake_ >= 0 && write(wake_, &once, sizeof once) < 0) return;
}

}  // namespace processor
