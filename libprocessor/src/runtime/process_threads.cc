// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/process_threads.h"

#include <unistd.h>

#include <charconv>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <set>
#include <string>
#include <system_error>
#include <vector>

#include "absl/strings/str_cat.h"

namespace processor {
namespace {

struct Kept {
  std::mutex mutex;
  std::set<int> threads;  // kernel ids
};

// Never freed: threads may end after the process has begun to.
Kept& GetKept() {
  static Kept* const kept = new Kept;
  return *kept;
}

class KeptThread {
 public:
  KeptThread() : id_(ThreadId()) {
    std::lock_guard<std::mutex> lock(GetKept().mutex);
    GetKept().threads.insert(id_);
  }
  ~KeptThread() {
    std::lock_guard<std::mutex> lock(GetKept().mutex);
    GetKept().threads.erase(id_);
  }

 private:
  const int id_;
};

// With the mutex of `kept` held, without which a thread could get its place before it is moved.
std::vector<int> ThreadsToMove(const Kept& kept) {
  std::vector<int> found;
  std::error_code error;
  for (std::filesystem::directory_iterator it("/proc/self/task", error), end; !error && it != end;
       it.increment(error)) {
    const std::string name = it->path().filename();
    int id = 0;
    std::from_chars(name.data(), name.data() + name.size(), id);
    if (id > 0 && kept.threads.count(id) == 0) found.push_back(id);
  }
  return found;
}

}  // namespace

void KeepThreadInPlace() { thread_local const KeptThread kept; }

void MoveThreads(const CpuSet& cpus) {
  const int main = static_cast<int>(getpid());
  std::lock_guard<std::mutex> lock(GetKept().mutex);
  for (int thread : ThreadsToMove(GetKept())) {
    if (thread != main) PinThread(thread, cpus);
  }
  PinMainThread(cpus);
}

std::map<int, ThreadTime> TimeOfThreads() {
  std::map<int, ThreadTime> times;
  std::lock_guard<std::mutex> lock(GetKept().mutex);
  for (int thread : ThreadsToMove(GetKept())) {
    std::ifstream file(absl::StrCat("/proc/self/task/", thread, "/schedstat"));
    ThreadTime time;
    if (file >> time.ran_ns >> time.waited_ns) times[thread] = time;
  }
  return times;
}

}  // namespace processor
