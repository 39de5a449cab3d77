// SPDX-License-Identifier: Apache-2.0
#include "src/tables/started_reads.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>
#include <vector>

#include "src/tables/read_threads.h"
#include "temporary_folder.h"

namespace processor {
namespace {

// Reads into memory of its own, and counts how often it has ended.
class CountedReads : public StartedReads {
 public:
  void Add(int descriptor, uint64_t offset, uint32_t size) {
    memory_.emplace_back(size);
    pieces.push_back({descriptor, offset, size, memory_.back().data(), 7, 7});
  }
  void Finished() noexcept override {
    std::lock_guard<std::mutex> lock(mutex_);
    ++ended_;
    wake_.notify_all();
  }
  void Wait() {
    std::unique_lock<std::mutex> lock(mutex_);
    wake_.wait(lock, [this] { return ended_ > 0; });
  }
  int ended() {
    std::lock_guard<std::mutex> lock(mutex_);
    return ended_;
  }

 private:
  std::deque<std::vector<uint8_t>> memory_;
  std::mutex mutex_;
  std::condition_variable wake_;
  int ended_ = 0;
};

// Both ways to read.
constexpr void (*kWays[])(std::shared_ptr<StartedReads>) = {
    StartReads, [](std::shared_ptr<StartedReads> reads) { ReadThreads::Global().Start(std::move(reads)); }};

class StartedReadsTest : public testing::Test {
 protected:
  StartedReadsTest() {
    std::mt19937 random(3);
    content_.resize(300000);
    for (char& byte : content_) byte = static_cast<char>(random());
    descriptor_ = open(folder_.Write("rows", content_).c_str(), O_RDONLY);
  }
  ~StartedReadsTest() override { close(descriptor_); }

  const TemporaryFolder folder_;
  std::string content_;
  int descriptor_;
};

TEST_F(StartedReadsTest, ReadsWhatManyThreadsStart) {
  for (const auto start : kWays) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        std::vector<std::shared_ptr<CountedReads>> all;
        for (int i = 0; i < 20; ++i) {
          all.push_back(std::make_shared<CountedReads>());
          // Some have more pieces than a ring.
          for (uint32_t p = 0; p < (i % 5 == 0 ? 700u : 3u); ++p)
            all.back()->Add(descriptor_, p * 401 + t, 1 + p % 400);
          start(all.back());
        }
        for (const auto& reads : all) {
          reads->Wait();
          for (const ReadPiece& piece : reads->pieces) {
            ASSERT_EQ(piece.got, piece.size);
            ASSERT_EQ(piece.error, 0);
            ASSERT_EQ(std::string(piece.bytes, piece.bytes + piece.size), content_.substr(piece.offset, piece.size));
          }
        }
        for (const auto& reads : all) EXPECT_EQ(reads->ended(), 1);
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST_F(StartedReadsTest, EachPieceHasItsOwnResult) {
  for (const auto start : kWays) {
    const auto reads = std::make_shared<CountedReads>();
    reads->Add(descriptor_, 299900, 1000);
    reads->Add(-1, 0, 1000);
    reads->Add(descriptor_, 5, 1000);
    reads->Add(descriptor_, 400000, 1000);
    start(reads);
    reads->Wait();
    const auto expect = [&](size_t piece, uint32_t got, int error) {
      EXPECT_EQ(reads->pieces[piece].got, got) << piece;
      EXPECT_EQ(reads->pieces[piece].error, error) << piece;
    };
    expect(0, 100, 0);  // the file ends
    expect(1, 0, EBADF);
    expect(2, 1000, 0);
    expect(3, 0, 0);
  }
}

TEST_F(StartedReadsTest, NothingToReadHasEndedAtOnce) {
  const auto reads = std::make_shared<CountedReads>();
  StartReads(reads);
  EXPECT_EQ(reads->ended(), 1);
}

TEST_F(StartedReadsTest, MemoryIsKeptUntilTheReadsHaveEnded) {
  int ends[2];
  ASSERT_EQ(pipe(ends), 0);
  for (const auto start : kWays) {
    auto reads = std::make_shared<CountedReads>();
    // A pipe answers when somebody writes; a ring reads it as a file that has no places. Threads cannot.
    const bool by_ring = start == kWays[0];
    reads->Add(by_ring ? ends[0] : descriptor_, by_ring ? ~uint64_t{0} : 0, 1);
    const std::weak_ptr<CountedReads> seen = reads;
    start(reads);
    if (by_ring && reads->ended() == 0) {
      reads.reset();
      EXPECT_FALSE(seen.expired()) << "its memory is the kernel's";
    }
    ASSERT_EQ(write(ends[1], "x", 1), 1);
    reads.reset();
    while (!seen.expired()) std::this_thread::yield();
  }
  close(ends[0]);
  close(ends[1]);
}

}  // namespace
}  // namespace processor
