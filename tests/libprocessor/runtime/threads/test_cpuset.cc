// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/threads/cpuset.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string_view>
#include <thread>
#include <vector>

namespace processor {
namespace {

const CpuSet kAllowed = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9};

TEST(Cpuset, ParsesCpusRangesAndMixedLists) {
  const struct {
    const char* text;
    std::vector<CpuSet> groups;
  } cases[] = {
      {"3", {{3}}},
      {"0-3", {{0, 1, 2, 3}}},
      {"0-1;2-3", {{0, 1}, {2, 3}}},
      {"0,2;1,3", {{0, 2}, {1, 3}}},
      {"0-3,8;4-7,9", {{0, 1, 2, 3, 8}, {4, 5, 6, 7, 9}}},
      {"3;4-6", {{3}, {4, 5, 6}}},
      {" 0 - 1 , 5 ; 9 ", {{0, 1, 5}, {9}}},
      {"5,1,1-2", {{1, 2, 5}}},
      {"0-1;0-1", {{0, 1}, {0, 1}}},
  };
  for (const auto& c : cases) {
    std::vector<CpuSet> groups;
    ASSERT_TRUE(ParseCpusets(c.text, static_cast<int>(c.groups.size()), kAllowed, &groups).ok()) << c.text;
    EXPECT_EQ(groups, c.groups) << c.text;
  }
}

TEST(Cpuset, RefusesMalformedSets) {
  for (const char* text : {"", ";", "0;", "a", "0-", "-1", "-0", "0--0", "3-1", "0,,1", "0-3-5", "1.5", "0x1", "+1",
                           "99999999999999999999", "0-99999999999", "8192", "0-1;b"}) {
    std::vector<CpuSet> groups = {{7}};
    const absl::Status status = ParseCpusets(text, 1, kAllowed, &groups);
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << text << ": " << status;
    EXPECT_EQ(groups, (std::vector<CpuSet>{{7}})) << "changed by " << text;
  }
}

TEST(Cpuset, RefusesCpusOutsideTheProcess) {
  std::vector<CpuSet> groups;
  const absl::Status status = ParseCpusets("0-3,12", 1, kAllowed, &groups);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_NE(status.message().find("CPU 12"), std::string::npos) << status;
  EXPECT_NE(status.message().find("0-9"), std::string::npos) << status;
}

TEST(Cpuset, RefusesAnotherNumberOfGroups) {
  std::vector<CpuSet> groups;
  const absl::Status status = ParseCpusets("0;1;2", 2, kAllowed, &groups);
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_NE(status.message().find("3 groups found, expected 2"), std::string::npos) << status;
}

TEST(Cpuset, FormatsWhatItParses) {
  EXPECT_EQ(FormatCpuset({}), "");
  EXPECT_EQ(FormatCpuset({4}), "4");
  EXPECT_EQ(FormatCpuset({0, 1, 2, 3, 8}), "0-3,8");
  EXPECT_EQ(FormatCpuset({0, 2, 4, 5}), "0,2,4-5");
  for (const char* text : {"0-3,8;4-7,9", "0;1;2", "0,2;1,3"}) {
    std::vector<CpuSet> groups;
    const std::string_view view(text);
    const int count = 1 + static_cast<int>(std::count(view.begin(), view.end(), ';'));
    ASSERT_TRUE(ParseCpusets(text, count, kAllowed, &groups).ok());
    EXPECT_EQ(FormatCpusets(groups), text);
  }
}

TEST(Cpuset, PinsTheCallingThread) {
  const CpuSet allowed = AllowedCpus();
  ASSERT_FALSE(allowed.empty());
  std::thread([&] {
    PinThread(0, {allowed.back()});
    EXPECT_EQ(CpusOfThread(0), CpuSet{allowed.back()});
    PinThread(0, {});
    EXPECT_EQ(CpusOfThread(0), CpuSet{allowed.back()}) << "an empty set is no request";
    PinThread(ThreadId(), allowed);
    EXPECT_EQ(CpusOfThread(0), allowed);
  }).join();
  EXPECT_EQ(CpusOfThread(0), allowed) << "only the thread was to move";
}

TEST(Cpuset, PinnedThreadSeesAllowedCpusOfProcess) {
  const CpuSet allowed = AllowedCpus();
  if (allowed.size() < 2) GTEST_SKIP() << "pinning shows only where there are two CPUs";
  std::thread([&] {
    PinThread(0, {allowed.back()});
    EXPECT_EQ(AllowedCpus(), allowed);
  }).join();
  // The main thread stands for the process.
  PinThread(0, {allowed.front()});
  std::thread([&] { EXPECT_EQ(AllowedCpus(), CpuSet{allowed.front()}); }).join();
  PinThread(0, allowed);
}

}  // namespace
}  // namespace processor
