// SPDX-License-Identifier: Apache-2.0
#include "src/tables/started_reads.h"

#include <pthread.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstddef>
#include <deque>
#include <mutex>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "src/tables/io_ring.h"
#include "src/tables/read_threads.h"

namespace processor {
namespace {

// How long to wait for a kernel that has no memory for a read.
constexpr std::chrono::milliseconds kRetryPause{1};

// The thread waits for one of so many reads on the way.
constexpr size_t kShareAtOnce = 8;
// How long reads that have ended, and those that were started, wait for others.
constexpr std::chrono::microseconds kMostDelay{100};

}  // namespace

// A thread that has a ring. It sleeps in the kernel until a read has ended or others were started.
class ReadQueue {
 public:
  // Returns null where the kernel refuses the ring, or there is no thread.
  static ReadQueue* Global() {
    static ReadQueue* const queue = Make();
    return queue;
  }

  void Start(std::shared_ptr<StartedReads> reads) {
    bool wake;
    {
      std::lock_guard<std::mutex> lock(mutex_);
      wake = started_.empty();
      started_.push_back(std::move(reads));
    }
    const uint64_t one = 1;
    while (wake && write(event_, &one, sizeof(one)) < 0 && errno == EINTR) {
    }
  }

 private:
  static constexpr size_t kMostReads = ReadBatch::kMostPieces;
  static constexpr uint64_t kWake = kMostReads;

  // A read that the kernel has, by its number in the ring.
  struct Running {
    std::shared_ptr<StartedReads> reads;
    ReadPiece* piece;
  };
  // Reads of which the first `begun` have been given to the kernel.
  struct Waiting {
    std::shared_ptr<StartedReads> reads;
    size_t begun = 0;
  };

  static ReadQueue* Make() {
    std::string why_not;
    if (ReadBatch::MakeRing(&why_not) == nullptr) return nullptr;  // ReadBatch::Make() logs why
    auto* const queue = new ReadQueue;                             // never destroyed, because its thread never ends
    queue->event_ = eventfd(0, EFD_CLOEXEC);
    if (queue->event_ < 0) return nullptr;
    try {
      std::thread thread([queue] { queue->Run(); });
      pthread_setname_np(thread.native_handle(), "table-reads");
      thread.detach();
    } catch (const std::system_error&) {
      return nullptr;
    }
    std::unique_lock<std::mutex> lock(queue->mutex_);
    queue->opened_.wait(lock, [&] { return queue->error_ >= 0; });
    return queue->error_ == 0 ? queue : nullptr;
  }

  void Run() {
    // It reads for all models, but was started by a thread that may be bound to the CPUs of one.
    cpu_set_t cpus;
    if (sched_getaffinity(getpid(), sizeof(cpus), &cpus) == 0) sched_setaffinity(0, sizeof(cpus), &cpus);
    IoRing ring;
    for (size_t i = 0; i < kMostReads; ++i) free_.push_back(kMostReads - 1 - i);
    const int error = ring.Open(2 * kMostReads);
    {
      std::lock_guard<std::mutex> lock(mutex_);
      error_ = error;
      opened_.notify_one();
      if (error != 0) return;
    }
    AddWake(&ring);
    bool comes = false;  // whether reads end all the time
    for (;;) {
      Add(&ring);
      // With many reads on the way, each of which ends soon, several are taken at a time.
      const size_t running = kMostReads - free_.size();
      const int failed = ring.EnterFor(comes ? 1 + running / kShareAtOnce : 1, kMostDelay);
      added_.erase(added_.begin(), added_.end() - static_cast<std::ptrdiff_t>(ring.added()));
      bool wake = false;
      // A device that is slow is waited for without looking at it again and again.
      comes =
          0 < ring.Collect([&](uint64_t id, int32_t result) { id == kWake ? wake = true : (End(id, result), false); });
      if (failed != 0 && failed != EINTR) {
        // The kernel takes the others when there is memory for them.
        if (failed != EAGAIN && failed != EBUSY) wake |= EndAdded(&ring, failed);
        std::this_thread::sleep_for(kRetryPause);
      }
      if (wake) AddWake(&ring);
    }
  }

  // Ends the reads that the kernel does not take. Returns whether that for Start() is one of them.
  bool EndAdded(IoRing* ring, int error) {
    ring->TakeBack();
    bool wake = false;
    for (const uint64_t id : added_) id == kWake ? wake = true : (End(id, -error), false);
    added_.clear();
    return wake;
  }

  // Lets the ring notice Start().
  void AddWake(IoRing* ring) {
    ring->Add({event_, ~uint64_t{0}, sizeof(events_), reinterpret_cast<uint8_t*>(&events_)}, kWake);
    added_.push_back(kWake);
  }

  void Add(IoRing* ring) {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      for (auto& reads : started_) waiting_.push_back({std::move(reads)});
      started_.clear();
    }
    while (!waiting_.empty() && !free_.empty()) {
      Waiting& next = waiting_.front();
      if (next.begun == 0) next.reads->left_ = next.reads->pieces.size();
      ReadPiece* const piece = &next.reads->pieces[next.begun++];
      const uint64_t id = free_.back();
      free_.pop_back();
      running_[id] = {next.reads, piece};
      ring->Add(*piece, id);
      added_.push_back(id);
      if (next.begun == next.reads->pieces.size()) waiting_.pop_front();
    }
  }

  void End(uint64_t id, int32_t result) {
    Running ended = std::move(running_[id]);
    running_[id] = {};
    free_.push_back(id);
    ended.piece->Set(result);
    if (--ended.reads->left_ == 0) ended.reads->Finished();
  }

  std::mutex mutex_;
  std::condition_variable opened_;
  int error_ = -1;                                     // of opening the ring; -1: not known yet
  std::deque<std::shared_ptr<StartedReads>> started_;  // which the thread has not seen
  int event_ = -1;
  uint64_t events_ = 0;
  // Of the thread:
  std::deque<Waiting> waiting_;
  std::vector<uint64_t> free_;
  std::vector<uint64_t> added_;  // that the kernel has not taken
  Running running_[kMostReads] = {};
};

void StartReads(std::shared_ptr<StartedReads> reads) {
  if (reads->pieces.empty()) return reads->Finished();
  if (ReadQueue* const queue = ReadQueue::Global()) return queue->Start(std::move(reads));
  ReadThreads::Global().Start(std::move(reads));
}

}  // namespace processor
