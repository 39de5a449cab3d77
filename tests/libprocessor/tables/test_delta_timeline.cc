// SPDX-License-Identifier: Apache-2.0
#include "src/tables/delta_timeline.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <atomic>
#include <thread>

#include "delta_file.h"
#include "temporary_folder.h"

namespace processor {
namespace {

// Writes segments of one epoch each, which continue each other.
class TimelineOfTests {
 public:
  std::string Bytes(uint64_t first, uint64_t last) {
    while (chains_.size() <= last) AddEpoch();
    made_.header.previous = chains_[first - 1];
    made_.header.first_epoch = first;
    made_.header.last_epoch = last;
    made_.header.chain = chains_[last];
    return made_.Bytes();
  }
  void Write(uint64_t first, uint64_t last) { folder_.Write(DeltaFileName(first, last), Bytes(first, last)); }
  void Remove(uint64_t first, uint64_t last) { std::filesystem::remove(folder_.Path(DeltaFileName(first, last))); }

  const TemporaryFolder& folder() const { return folder_; }
  DeltaTimeline timeline() const { return DeltaTimeline(folder_.path()); }
  TimelinePosition start() const { return PositionOfExport(made_.header.lineage); }

 private:
  void AddEpoch() {
    made_.header.first_epoch = made_.header.last_epoch = chains_.size();
    made_.header.previous = chains_.back();
    const std::string bytes = made_.Bytes();
    std::memcpy(chains_.emplace_back().data(), bytes.data() + bytes.size() - 32, 32);
  }

  TemporaryFolder folder_;
  DeltaFileContent made_;
  std::vector<ChainHash> chains_ = {made_.header.previous};
};

// Reads as much as there is, and returns why there is no more.
absl::Status ReadAll(const DeltaTimeline& timeline, TimelinePosition* position) {
  while (true) {
    std::unique_ptr<const DeltaSegment> segment;
    if (absl::Status s = timeline.Next(*position, &segment); !s.ok() || segment == nullptr) return s;
    *position = PositionAfter(segment->header());
  }
}

TEST(DeltaTimeline, ReadsSegmentsAsTheyArePublished) {
  TimelineOfTests made;
  const DeltaTimeline timeline = made.timeline();
  TimelinePosition position = made.start();
  for (uint64_t epoch = 1; epoch <= 3; ++epoch) {
    EXPECT_TRUE(ReadAll(timeline, &position).ok());
    EXPECT_EQ(position.epoch, epoch - 1);
    made.Write(epoch, epoch);
  }
  EXPECT_TRUE(ReadAll(timeline, &position).ok());
  EXPECT_EQ(position.epoch, 3);
}

TEST(DeltaTimeline, AGapIsAnErrorUntilTheSegmentIsThere) {
  TimelineOfTests made;
  made.Write(1, 1);
  made.Write(3, 3);
  TimelinePosition position = made.start();
  const absl::Status status = ReadAll(made.timeline(), &position);
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find(DeltaFileName(3, 3)), std::string::npos) << status;
  EXPECT_EQ(position.epoch, 1);
  made.Write(2, 2);
  EXPECT_TRUE(ReadAll(made.timeline(), &position).ok());
  EXPECT_EQ(position.epoch, 3);
}

TEST(DeltaTimeline, AFolderThatIsRemovedIsNamed) {
  TimelineOfTests made;
  const DeltaTimeline timeline(made.folder().Path("timeline"));
  std::filesystem::create_directory(timeline.folder());
  TimelinePosition position = made.start();
  EXPECT_TRUE(ReadAll(timeline, &position).ok());
  std::filesystem::remove(timeline.folder());
  const absl::Status status = ReadAll(timeline, &position);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find("timeline '" + timeline.folder() + "'"), std::string::npos) << status;
}

TEST(DeltaTimeline, ALinkToNowhereEndsTheSearch) {
  TimelineOfTests made;
  std::filesystem::create_symlink("nowhere", made.folder().Path(DeltaFileName(1, 1)));
  TimelinePosition position = made.start();
  const absl::Status status = ReadAll(made.timeline(), &position);
  EXPECT_EQ(status.code(), absl::StatusCode::kNotFound);
  EXPECT_NE(status.message().find(DeltaFileName(1, 1)), std::string::npos) << status;
}

// A compaction publishes its segment and then deletes those that it replaces, whatever a reader has listed.
TEST(DeltaTimeline, CompactionBesideAReaderLosesNothing) {
  constexpr uint64_t kEpochs = 40;
  TimelineOfTests made;
  for (uint64_t epoch = 1; epoch <= kEpochs; ++epoch) made.Write(epoch, epoch);
  std::vector<std::string> compacted;
  for (uint64_t epoch = 2; epoch <= kEpochs; ++epoch) compacted.push_back(made.Bytes(1, epoch));
  std::atomic<bool> done{false};
  std::thread compaction([&] {
    for (uint64_t epoch = 2; epoch <= kEpochs; ++epoch) {
      made.folder().Write(DeltaFileName(1, epoch), compacted[epoch - 2]);
      made.Remove(1, epoch - 1);
      made.Remove(epoch, epoch);
    }
    done = true;
  });
  while (!done) {
    std::unique_ptr<const DeltaSegment> segment;
    const absl::Status status = made.timeline().Next(made.start(), &segment);
    ASSERT_TRUE(status.ok() && segment != nullptr) << status;
  }
  compaction.join();
  TimelinePosition position = made.start();
  EXPECT_TRUE(ReadAll(made.timeline(), &position).ok());
  EXPECT_EQ(position.epoch, kEpochs);
}

TEST(DeltaTimeline, ACompactedSegmentContinuesFromAnEpochWhoseChainHashItLists) {
  DeltaHeader header;
  header.first_epoch = 2;
  header.last_epoch = 5;
  const std::vector<ChainHash> chains = {{2}, {3}, {4}};
  for (uint64_t epoch = 2; epoch <= 4; ++epoch) {
    TimelinePosition position;
    position.epoch = epoch;
    position.chain = {static_cast<uint8_t>(epoch)};
    EXPECT_TRUE(CheckContinues(header, chains, position).ok()) << epoch;
    EXPECT_NE(CheckContinues(header, {}, position).message().find("out of order"), std::string::npos);
    position.chain = {9};
    EXPECT_NE(CheckContinues(header, chains, position).message().find("another history"), std::string::npos);
    position.epoch = epoch + 3;
    EXPECT_NE(CheckContinues(header, chains, position).message().find("out of order"), std::string::npos);
  }
}

TEST(DeltaTimeline, ASegmentOfAnEarlierTermIsRefused) {
  DeltaHeader header;
  header.first_epoch = header.last_epoch = 8;
  header.term = 3;
  TimelinePosition position;
  position.epoch = 7;
  position.term = 3;
  EXPECT_TRUE(CheckContinues(header, {}, position).ok());
  position.term = 4;
  EXPECT_NE(CheckContinues(header, {}, position).message().find("term 3, expected at least 4"), std::string::npos);
}

}  // namespace
}  // namespace processor
