// SPDX-License-Identifier: Apache-2.0
// Batches of reads by io_uring, with the system calls themselves: the library has few users, and liburing is one more
// dependency.
#include <linux/io_uring.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "src/tables/read_batch.h"

namespace processor {
namespace {

// One queue of memory that the kernel and the process share.
class RingMapping {
 public:
  RingMapping() = default;
  ~RingMapping() {
    if (data_ != nullptr) munmap(data_, size_);
  }
  RingMapping(const RingMapping&) = delete;
  RingMapping& operator=(const RingMapping&) = delete;

  bool Map(int descriptor, size_t size, uint64_t offset) {
    void* const found =
        mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, descriptor, static_cast<off_t>(offset));
    if (found == MAP_FAILED) return false;
    data_ = static_cast<uint8_t*>(found);
    size_ = size;
    return true;
  }
  template <typename T>
  T* At(size_t offset) const {
    return reinterpret_cast<T*>(data_ + offset);
  }

 private:
  uint8_t* data_ = nullptr;
  size_t size_ = 0;
};

class ReadRing : public ReadBatch {
 public:
  ~ReadRing() override {
    if (descriptor_ >= 0) close(descriptor_);
  }

  // Returns 0 or an error number.
  int Open() {
    io_uring_params params = {};
    descriptor_ = static_cast<int>(syscall(SYS_io_uring_setup, static_cast<unsigned>(kMostPieces), &params));
    if (descriptor_ < 0) return errno;
    // Without IORING_FEAT_SINGLE_MMAP (Linux 5.4) there is no IORING_OP_READ (5.6) either.
    if ((params.features & IORING_FEAT_SINGLE_MMAP) == 0) return ENOSYS;
    const size_t bytes = std::max<size_t>(params.sq_off.array + params.sq_entries * sizeof(unsigned),
                                          params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe));
    if (!rings_.Map(descriptor_, bytes, IORING_OFF_SQ_RING) ||
        !entries_.Map(descriptor_, params.sq_entries * sizeof(io_uring_sqe), IORING_OFF_SQES)) {
      return errno;
    }
    offsets_ = params;
    return 0;
  }

  void Read(absl::Span<ReadPiece> pieces) override {
    for (size_t first = 0; first < pieces.size(); first += kMostPieces) {
      const size_t count = std::min(kMostPieces, pieces.size() - first);
      ReadSome(pieces.subspan(first, count));
      for (ReadPiece& piece : pieces.subspan(first, count)) {
        if (piece.got < piece.size) ReadRest(&piece);
      }
    }
  }

  // Sets what the kernel gives for the pieces, at most kMostPieces: the rest of one may be missing.
  void ReadSome(absl::Span<ReadPiece> pieces) {
    // What the kernel does not take.
    for (ReadPiece& piece : pieces) piece.got = 0, piece.error = EAGAIN;
    Submit(pieces);
  }

 private:
  void Submit(absl::Span<ReadPiece> pieces) {
    auto* const tail = rings_.At<unsigned>(offsets_.sq_off.tail);
    const unsigned mask = *rings_.At<unsigned>(offsets_.sq_off.ring_mask);
    auto* const order = rings_.At<unsigned>(offsets_.sq_off.array);
    auto* const entries = entries_.At<io_uring_sqe>(0);
    unsigned at = *tail;
    for (size_t i = 0; i < pieces.size(); ++i, ++at) {
      io_uring_sqe& entry = entries[at & mask];
      std::memset(&entry, 0, sizeof(entry));
      entry.opcode = IORING_OP_READ;
      entry.fd = pieces[i].descriptor;
      entry.addr = reinterpret_cast<uint64_t>(pieces[i].bytes);
      entry.len = pieces[i].size;
      entry.off = pieces[i].offset;
      entry.user_data = i;
      order[at & mask] = at & mask;
    }
    __atomic_store_n(tail, at, __ATOMIC_RELEASE);
    size_t left = pieces.size(), to_submit = pieces.size();
    while (left > 0) {
      const long submitted = syscall(SYS_io_uring_enter, descriptor_, static_cast<unsigned>(to_submit),
                                     static_cast<unsigned>(left), IORING_ENTER_GETEVENTS, nullptr, 0);
      if (submitted > 0) to_submit -= std::min(to_submit, static_cast<size_t>(submitted));
      left -= std::min(left, Collect(pieces));
      if (submitted >= 0 || errno == EINTR || errno == EAGAIN || errno == EBUSY) continue;
      // The kernel takes no more. What it has taken must end before its memory is used again.
      left -= std::min(left, to_submit);
      __atomic_store_n(tail, at - static_cast<unsigned>(to_submit), __ATOMIC_RELEASE);
      to_submit = 0;
    }
  }

  size_t Collect(absl::Span<ReadPiece> pieces) {
    auto* const head = rings_.At<unsigned>(offsets_.cq_off.head);
    const unsigned end = __atomic_load_n(rings_.At<unsigned>(offsets_.cq_off.tail), __ATOMIC_ACQUIRE);
    const unsigned mask = *rings_.At<unsigned>(offsets_.cq_off.ring_mask);
    const auto* const done = rings_.At<io_uring_cqe>(offsets_.cq_off.cqes);
    unsigned at = *head;
    const unsigned begin = at;
    for (; at != end; ++at) {
      ReadPiece& piece = pieces[done[at & mask].user_data];
      const int32_t result = done[at & mask].res;
      piece.got = static_cast<uint32_t>(std::max(result, 0));
      piece.error = std::max(-result, 0);
    }
    __atomic_store_n(head, at, __ATOMIC_RELEASE);
    return end - begin;
  }

  int descriptor_ = -1;
  RingMapping rings_, entries_;
  io_uring_params offsets_ = {};
};

// Reads nothing from a file that always answers, since a kernel may know io_uring but not this operation.
bool ReadsByRing(ReadRing* ring, std::string* why_not) {
  uint8_t byte = 0;
  int ends[2];
  if (pipe(ends) != 0) {
    *why_not = absl::StrCat("pipe: ", std::strerror(errno));
    return false;
  }
  const bool written = write(ends[1], "x", 1) == 1;
  ReadPiece piece{ends[0], ~uint64_t{0}, 1, &byte};
  if (written) ring->ReadSome(absl::MakeSpan(&piece, 1));
  close(ends[0]);
  close(ends[1]);
  if (written && piece.got == 1 && byte == 'x') return true;
  *why_not = absl::StrCat("io_uring cannot read: ", std::strerror(piece.error));
  return false;
}

}  // namespace

std::unique_ptr<ReadBatch> ReadBatch::MakeRing(std::string* why_not) {
  auto ring = std::make_unique<ReadRing>();
  if (const int error = ring->Open(); error != 0) {
    *why_not = absl::StrCat("io_uring: ", std::strerror(error));
    return nullptr;
  }
  if (!ReadsByRing(ring.get(), why_not)) return nullptr;
  return ring;
}

}  // namespace processor
