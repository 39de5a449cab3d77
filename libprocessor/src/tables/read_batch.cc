// SPDX-License-Identifier: Apache-2.0
#include "src/tables/read_batch.h"

#include <pthread.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <system_error>
#include <thread>

#include "absl/strings/str_cat.h"
#include "src/base/log.h"

namespace processor {
namespace {

constexpr int kThreads = 32;

void ReadNow(ReadPiece* piece) {
  ssize_t got;
  do {
    got = pread(piece->descriptor, piece->bytes, piece->size, static_cast<off_t>(piece->offset));
  } while (got < 0 && errno == EINTR);
  piece->result = got < 0 ? -errno : got;
}

// The threads of the process, which are started with the first batch and never end.
class ReadThreads {
 public:
  struct Batch {
    size_t left = 0;
    std::condition_variable done;
  };

  static ReadThreads& Global() {
    static auto* const threads = new ReadThreads;
    return *threads;
  }

  void Read(absl::Span<ReadPiece> pieces) {
    Batch batch;
    batch.left = pieces.size();
    std::unique_lock<std::mutex> lock(mutex_);
    for (ReadPiece& piece : pieces) queue_.push_back({&piece, &batch});
    wanted_.notify_all();
    // Without threads, this one reads.
    while (batch.left > 0 && started_ == 0) ReadNext(&lock);
    batch.done.wait(lock, [&] { return batch.left == 0; });
  }

 private:
  struct Entry {
    ReadPiece* piece;
    Batch* batch;
  };

  ReadThreads() {
    try {
      for (; started_ < kThreads; ++started_) {
        std::thread thread([this] { Run(); });
        pthread_setname_np(thread.native_handle(), "table-reads");
        thread.detach();
      }
    } catch (const std::system_error&) {
      // As many as the system permits.
    }
  }

  void Run() {
    std::unique_lock<std::mutex> lock(mutex_);
    for (;;) {
      wanted_.wait(lock, [this] { return !queue_.empty(); });
      ReadNext(&lock);
    }
  }

  void ReadNext(std::unique_lock<std::mutex>* lock) {
    const Entry entry = queue_.front();
    queue_.pop_front();
    lock->unlock();
    ReadNow(entry.piece);
    lock->lock();
    if (--entry.batch->left == 0) entry.batch->done.notify_one();
  }

  std::mutex mutex_;
  std::condition_variable wanted_;
  std::deque<Entry> queue_;
  int started_ = 0;
};

class ThreadedReads : public ReadBatch {
 public:
  void Read(absl::Span<ReadPiece> pieces) override {
    if (pieces.size() == 1) return ReadNow(&pieces[0]);
    if (!pieces.empty()) ReadThreads::Global().Read(pieces);
  }
};

}  // namespace

std::unique_ptr<ReadBatch> ReadBatch::MakeThreads() { return std::make_unique<ThreadedReads>(); }

std::unique_ptr<ReadBatch> ReadBatch::Make() {
  std::string why_not;
  if (std::unique_ptr<ReadBatch> ring = MakeRing(&why_not)) return ring;
  static std::once_flag logged;
  std::call_once(logged, [&] {
    Log(Severity::kWarning, absl::StrCat("tiered tables: ", why_not, "; ", kThreads, " threads read instead"));
  });
  return MakeThreads();
}

}  // namespace processor
