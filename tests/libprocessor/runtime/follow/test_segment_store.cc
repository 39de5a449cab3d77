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
#include <thread>

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
  std::this_thread::sleep_for(std::chrono::milliseconds(100));  // most likely it waits by then
  auto held = std::async(std::launch::async, [&] { store->SetHeld(&folder, 1); });
  EXPECT_EQ(held.wait_for(std::chrono::seconds(20)), std::future_status::ready);
  // There is a reader as soon as Keep() opens the pipe, which waits for this writer.
  int writer = -1;
  while ((writer = open(pipe.c_str(), O_WRONLY | O_NONBLOCK)) < 0) usleep(1000);
  const absl::Status status = kept.get();
  close(writer);
  held.get();
  store->SetHeld(&folder, std::nullopt);
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_TRUE(added);
}

}  // namespace
}  // namespace processor
