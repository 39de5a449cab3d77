// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/follow/folder_watch.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "gtest/gtest.h"
#include "temporary_folder.h"

namespace processor {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kLong{20000};

milliseconds TimeOfWait(FolderWatch& watch, milliseconds most) {
  const auto start = Clock::now();
  EXPECT_EQ(watch.Wait(most), most == kLong);
  return std::chrono::duration_cast<milliseconds>(Clock::now() - start);
}

TEST(FolderWatch, AFileThatAppearsEndsTheWait) {
  const TemporaryFolder folder;
  const std::filesystem::path dir(folder.path());
  FolderWatch watch(folder.path());
  EXPECT_GE(TimeOfWait(watch, milliseconds(20)), milliseconds(20)) << "nothing has happened";
  std::ofstream(dir / ".segment") << "x";
  EXPECT_LT(TimeOfWait(watch, kLong), kLong);
  std::filesystem::rename(dir / ".segment", dir / "segment");
  EXPECT_LT(TimeOfWait(watch, kLong), kLong);
  std::filesystem::create_hard_link(dir / "segment", dir / "other");
  EXPECT_LT(TimeOfWait(watch, kLong), kLong);
}

TEST(FolderWatch, AFolderThatIsMadeAgainIsWatchedAgain) {
  const TemporaryFolder folder;
  const std::filesystem::path dir = std::filesystem::path(folder.path()) / "timeline";
  FolderWatch watch(dir.string());
  EXPECT_GE(TimeOfWait(watch, milliseconds(20)), milliseconds(20)) << "there is no folder yet";
  for (int time = 0; time < 2; ++time) {
    std::filesystem::create_directory(dir);
    watch.Wait(milliseconds(1));
    std::ofstream(dir / "segment") << "x";
    EXPECT_LT(TimeOfWait(watch, kLong), kLong);
    std::filesystem::remove_all(dir);
    while (watch.Wait(milliseconds(20))) {
    }
  }
}

TEST(FolderWatch, WakeEndsAWaitOnAnotherThread) {
  const TemporaryFolder folder;
  FolderWatch watch(folder.path());
  watch.Wake();
  EXPECT_LT(TimeOfWait(watch, kLong), kLong) << "a wake-up before the wait counts";
  std::thread waking([&watch] {
    std::this_thread::sleep_for(milliseconds(10));
    watch.Wake();
  });
  EXPECT_LT(TimeOfWait(watch, kLong), kLong);
  waking.join();
}

}  // namespace
}  // namespace processor
