// SPDX-License-Identifier: Apache-2.0
#include "src/tables/read_batch.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <thread>

#include "absl/strings/str_cat.h"
#include "src/base/log.h"
#include "src/tables/read_threads.h"

namespace processor {
namespace {

// What offsets, sizes and addresses are multiples of, if a file system asks for any alignment.
constexpr uint32_t kPageBytes = 4096;
// How often a read is tried again, after a pause, for which the kernel has no memory or no place in a queue.
constexpr int kMostTries = 100;
constexpr std::chrono::milliseconds kPause{1};

// Does the file end at an offset or before?
bool IsEnd(int descriptor, uint64_t offset) {
  struct stat found;
  return fstat(descriptor, &found) == 0 && static_cast<uint64_t>(found.st_size) <= offset;
}

class ThreadedReads : public ReadBatch {
 public:
  void Read(absl::Span<ReadPiece> pieces) override {
    if (pieces.size() == 1) {
      pieces[0].got = 0;
      return ReadRest(&pieces[0]);
    }
    if (!pieces.empty()) ReadThreads::Global().Read(pieces);
  }
};

}  // namespace

void ReadRest(ReadPiece* piece) {
  piece->error = 0;
  uint32_t most = piece->size;
  for (int tries = 1; piece->got < piece->size;) {
    const uint32_t begin = piece->got / kPageBytes * kPageBytes;
    const ssize_t got = pread(piece->descriptor, piece->bytes + begin, std::min(most, piece->size - begin),
                              static_cast<off_t>(piece->offset + begin));
    if (got < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN && tries++ < kMostTries) {
        std::this_thread::sleep_for(kPause);
        continue;
      }
      if (most > kPageBytes) {
        most = kPageBytes;
        continue;
      }
      piece->error = errno;
      return;
    }
    const uint32_t read = begin + static_cast<uint32_t>(got);
    if (read > piece->got) {
      piece->got = read;
    } else if (IsEnd(piece->descriptor, piece->offset + piece->got)) {
      return;
    } else if (tries++ == kMostTries) {
      piece->error = EIO;
      return;
    }
  }
}

std::unique_ptr<ReadBatch> ReadBatch::MakeThreads() { return std::make_unique<ThreadedReads>(); }

std::unique_ptr<ReadBatch> ReadBatch::Make() {
  std::string why_not;
  if (std::unique_ptr<ReadBatch> ring = MakeRing(&why_not)) return ring;
  static std::once_flag logged;
  std::call_once(logged, [&] {
    Log(Severity::kWarning,
        absl::StrCat("tiered tables: ", why_not, "; ", ReadThreads::kThreads, " threads read instead"));
  });
  return MakeThreads();
}

}  // namespace processor
