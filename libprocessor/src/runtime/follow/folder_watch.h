// SPDX-License-Identifier: Apache-2.0
// Waits until a file appears in a folder. The follower of a version owns it, and its thread waits.
#ifndef PROCESSOR_RUNTIME_FOLLOW_FOLDER_WATCH_H_
#define PROCESSOR_RUNTIME_FOLLOW_FOLDER_WATCH_H_

#include <chrono>
#include <string>

namespace processor {

/// Where the kernel cannot watch the folder (a network file system, no more watches, no such folder), only the time of a
/// wait ends it.
class FolderWatch {
 public:
  explicit FolderWatch(std::string folder);
  ~FolderWatch();
  FolderWatch(const FolderWatch&) = delete;
  FolderWatch& operator=(const FolderWatch&) = delete;

  /// Returns when a file has been linked, renamed or written into the folder since the last call, after Wake(), or after
  /// `most`. For one thread. \return whether there was another reason than the time.
  bool Wait(std::chrono::milliseconds most);
  /// Ends the present wait, or the next one. Any thread may call.
  void Wake() noexcept;

 private:
  void Watch();
  static void Empty(int descriptor);

  const std::string folder_;
  int notify_ = -1;  // of the kernel; -1: none could be made
  int watch_ = -1;   // of the folder; -1: not watched
  int wake_ = -1;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_FOLLOW_FOLDER_WATCH_H_
