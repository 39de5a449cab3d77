// SPDX-License-Identifier: Apache-2.0
#include "src/tables/read_batch.h"

#include <fcntl.h>
#include <gtest/gtest.h>
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
      pieces.push_back({descriptor_, i * 401, static_cast<uint32_t>(1 + i % 400), memory[i].data(), 0});
    }
    batch->Read(absl::MakeSpan(pieces));
    for (const ReadPiece& piece : pieces) {
      ASSERT_EQ(piece.result, piece.size);
      ASSERT_EQ(std::string(piece.bytes, piece.bytes + piece.size), content_.substr(piece.offset, piece.size));
    }
    batch->Read({});
  }
}

TEST_F(ReadBatchTest, EachPieceHasItsOwnResult) {
  for (const auto& batch : Batches()) {
    std::vector<uint8_t> memory(3000);
    std::vector<ReadPiece> pieces = {{descriptor_, 299900, 1000, memory.data(), 7},
                                     {-1, 0, 1000, memory.data() + 1000, 7},
                                     {descriptor_, 5, 1000, memory.data() + 2000, 7},
                                     {descriptor_, 400000, 1000, memory.data(), 7}};
    batch->Read(absl::MakeSpan(pieces));
    EXPECT_EQ(pieces[0].result, 100) << "the file ends";
    EXPECT_EQ(pieces[1].result, -EBADF);
    EXPECT_EQ(pieces[2].result, 1000);
    EXPECT_EQ(pieces[3].result, 0);
    EXPECT_EQ(std::string(memory.begin() + 2000, memory.end()), content_.substr(5, 1000));
  }
}

}  // namespace
}  // namespace processor
