// SPDX-License-Identifier: Apache-2.0
#include "src/tables/read_batch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <random>
#include <vector>

#include "temporary_folder.h"

namespace processor {
namespace {

// Both ways to read.
std::vector<std::unique_ptr<ReadBatch>> Batches() {
  std::vector<std::unique_ptr<ReadBatch>> batches;
  batches.push_back(ReadBatch::MakeThreads());
  std::string why_not;
  if (std::unique_ptr<ReadBatch> ring = ReadBatch::MakeRing(&why_not)) {
    batches.push_back(std::move(ring));
  } else {
    std::printf("%s\n", why_not.c_str());
  }
  return batches;
}

class ReadBatchTest : public testing::Test {
 protected:
  ReadBatchTest() {
    std::mt19937 random(3);
    content_.resize(300000);
    for (char& byte : content_) byte = static_cast<char>(random());
    descriptor_ = open(folder_.Write("rows", content_).c_str(), O_RDONLY);
  }
  ~ReadBatchTest() override { close(descriptor_); }

  const TemporaryFolder folder_;
  std::string content_;
  int descriptor_;
};

TEST_F(ReadBatchTest, ReadsAllPieces) {
  for (const auto& batch : Batches()) {
    // More than one round.
    std::vector<std::vector<uint8_t>> memory(700, std::vector<uint8_t>(400));
    std::vector<ReadPiece> pieces;
    for (size_t i = 0; i < memory.size(); ++i) {
      pieces.push_back({descriptor_, i * 401, static_cast<uint32_t>(1 + i % 400), memory[i].data()});
    }
    batch->Read(absl::MakeSpan(pieces));
    for (const ReadPiece& piece : pieces) {
      ASSERT_EQ(piece.got, piece.size);
      ASSERT_EQ(piece.error, 0);
      ASSERT_EQ(std::string(piece.bytes, piece.bytes + piece.size), content_.substr(piece.offset, piece.size));
    }
    batch->Read({});
  }
}

TEST_F(ReadBatchTest, EachPieceHasItsOwnResult) {
  for (const auto& batch : Batches()) {
    std::vector<uint8_t> memory(3000);
    std::vector<ReadPiece> pieces = {{descriptor_, 299900, 1000, memory.data(), 7, 7},
                                     {-1, 0, 1000, memory.data() + 1000, 7, 7},
                                     {descriptor_, 5, 1000, memory.data() + 2000, 7, 7},
                                     {descriptor_, 400000, 1000, memory.data(), 7, 7}};
    batch->Read(absl::MakeSpan(pieces));
    const auto expect = [&](size_t piece, uint32_t got, int error) {
      EXPECT_EQ(pieces[piece].got, got) << piece;
      EXPECT_EQ(pieces[piece].error, error) << piece;
    };
    expect(0, 100, 0);  // the file ends
    expect(1, 0, EBADF);
    expect(2, 1000, 0);
    expect(3, 0, 0);
    EXPECT_EQ(std::string(memory.begin() + 2000, memory.end()), content_.substr(5, 1000));
  }
}

// The kernel stops at memory that it may not write, as it stops at a sector that the device cannot read.
TEST_F(ReadBatchTest, ErrorEndsAPieceWhereItIs) {
  constexpr size_t kPage = 4096, kPages = 40, kBad = 23;
  auto* const memory =
      static_cast<uint8_t*>(mmap(nullptr, kPages * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_NE(static_cast<void*>(memory), MAP_FAILED);
  for (const auto& batch : Batches()) {
    ASSERT_EQ(mprotect(memory + kBad * kPage, kPage, PROT_NONE), 0);
    ReadPiece piece{descriptor_, 2 * kPage, kPages * kPage, memory};
    batch->Read(absl::MakeSpan(&piece, 1));
    EXPECT_EQ(piece.error, EFAULT);
    EXPECT_EQ(piece.got, kBad * kPage);
    EXPECT_EQ(std::string(memory, memory + piece.got), content_.substr(piece.offset, piece.got));
    ASSERT_EQ(mprotect(memory + kBad * kPage, kPage, PROT_READ | PROT_WRITE), 0);
    batch->Read(absl::MakeSpan(&piece, 1));
    EXPECT_EQ(piece.error, 0);
    EXPECT_EQ(piece.got, piece.size);
  }
  munmap(memory, kPages * kPage);
}

TEST_F(ReadBatchTest, RestOfAShortReadIsReadFromThePageThatItEndedIn) {
  for (const uint32_t got : {0u, 1u, 4095u, 4096u, 10000u, 19999u, 20000u}) {
    std::vector<uint8_t> memory(20000, 0xee);
    ReadPiece piece{descriptor_, 4096, 20000, memory.data(), got, EINTR};
    ReadRest(&piece);
    EXPECT_EQ(piece.got, 20000u);
    EXPECT_EQ(piece.error, 0);
    const size_t kept = got == piece.size ? got : got / 4096 * 4096;
    EXPECT_EQ(std::string(memory.begin(), memory.begin() + kept), std::string(kept, '\xee')) << got;
    EXPECT_EQ(std::string(memory.begin() + kept, memory.end()), content_.substr(4096 + kept, 20000 - kept)) << got;
  }
}

}  // namespace
}  // namespace processor
