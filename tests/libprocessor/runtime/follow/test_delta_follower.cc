// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/follow/delta_follower.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <utility>

#include "src/live/overlay_group.h"
#include "tables/delta_file.h"
#include "temporary_folder.h"

namespace processor {
namespace {

constexpr std::chrono::seconds kDeadline{20};

template <typename Condition>
bool WaitUntil(const Condition& condition) {
  const auto end = std::chrono::steady_clock::now() + kDeadline;
  while (!condition() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return condition();
}

TEST(DeltaFollower, AGivenUpSegmentKeepsItsCopy) {
  const TemporaryFolder folder;
  const DeltaFileContent segment;
  LiveDescription description;
  description.lineage = segment.header.lineage;
  description.chain = segment.header.previous;
  FollowOptions options;
  options.model = "model";
  options.timeline = folder.Path("deltas");
  options.store = folder.Path("stores");
  std::filesystem::create_directories(options.timeline);
  const std::shared_ptr<OverlayGroup> group = OverlayGroup::Of(options.timeline, description);
  tensorflow::core::RefCountPtr<LiveModel> model;
  ASSERT_TRUE(LiveModel::Create(description, {}, {}, nullptr, &model).ok());
  DeltaFollower follower(options, std::move(model));
  ASSERT_TRUE(follower.Start(Cancellation()).ok());
  const std::string copy = follower.state().store + "/" + DeltaFileName(1, 1);
  // Another model of the timeline changes the overlays, and may have applied the segment by now.
  std::unique_lock<std::mutex> other(group->mutex());
  folder.Write("deltas/" + DeltaFileName(1, 1), segment.Bytes());
  ASSERT_TRUE(WaitUntil([&] { return std::filesystem::exists(copy); }));
  follower.Hold(0);
  EXPECT_TRUE(WaitUntil([&] { return follower.state().live.held; })) << "it has given up";
  EXPECT_TRUE(std::filesystem::exists(copy));
  other.unlock();
  follower.Hold(std::nullopt);
  EXPECT_TRUE(WaitUntil([&] { return follower.state().live.newest.epoch == 1; })) << follower.error();
  EXPECT_TRUE(std::filesystem::exists(copy));
}

}  // namespace
}  // namespace processor
