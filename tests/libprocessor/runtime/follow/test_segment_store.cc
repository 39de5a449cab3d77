// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/follow/segment_store.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <future>
#include <memory>
#include <optional>
#include <string>

#include "tables/delta_file.h"
#include "temporary_folder.h"

namespace processor {
namespace {

TEST(SegmentStore, AFollowerIsHeldWhileAnotherWaitsForTheDisk) {
  const TemporaryFolder folder;
  DeltaFileContent made;
  made.header.first_epoch = made.header.last_epoch = 1;
  std::unique_ptr<const DeltaSegment> segment;
  const absl::Status opened = DeltaSegment::Open(folder.Write(DeltaFileName(1, 1), made.Bytes()), &segment);
  ASSERT_TRUE(opened.ok()) << opened;
  const auto store = SegmentStore::Of(folder.Path("stores"), folder.path(), segment->header().lineage);
  // A copy whose header cannot be read before somebody writes to the pipe.
  std::filesystem::create_directories(store->folder());
  const std::string pipe = store->folder() + "/" + DeltaFileName(1, 1);
  ASSERT_EQ(mkfifo(pipe.c_str(), 0600), 0);
  bool added = false;
  auto kept = std::async(std::launch::async, [&] { return store->Keep(*segment, &added); });
  int writer = -1;
  while ((writer = open(pipe.c_str(), O_WRONLY | O_NONBLOCK)) < 0) usleep(1000);  // until it is being read
  auto held = std::async(std::launch::async, [&] { store->SetHeld(&folder, 1); });
  const auto waited = held.wait_for(std::chrono::seconds(20));
  close(writer);
  EXPECT_EQ(waited, std::future_status::ready);
  held.get();
  store->SetHeld(&folder, std::nullopt);
  const absl::Status status = kept.get();
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(added);
}

}  // namespace
}  // namespace processor
