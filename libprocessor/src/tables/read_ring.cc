// SPDX-License-Identifier: Apache-2.0
// Batches of reads by io_uring.
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "src/tables/io_ring.h"
#include "src/tables/read_batch.h"

namespace processor {
namespace {

class ReadRing : public ReadBatch {
 public:
  // Returns 0 or an error number.
  int Open() { return ring_.Open(static_cast<unsigned>(kMostPieces)); }

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
    for (size_t i = 0; i < pieces.size(); ++i) {
      // What the kernel does not take.
      pieces[i].got = 0, pieces[i].error = EAGAIN;
      ring_.Add(pieces[i], i);
    }
    for (size_t left = pieces.size(); left > 0;) {
      const int error = ring_.Enter(left);
      left -= std::min(left, ring_.Collect([&](uint64_t piece, int32_t result) { pieces[piece].Set(result); }));
      if (error == 0 || error == EINTR || error == EAGAIN || error == EBUSY) continue;
      // The kernel takes no more. What it has taken must end before its memory is used again.
      left -= std::min(left, ring_.TakeBack());
    }
  }

 private:
  IoRing ring_;
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
