// SPDX-License-Identifier: Apache-2.0
#include "src/host/requests/route_table.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "absl/strings/str_cat.h"
#include "src/host/desired/routing.h"

namespace processor {
namespace {

std::shared_ptr<const Servable> MakeServable(int64_t number) {
  auto servable = std::make_shared<Servable>();
  servable->number = number;
  return servable;
}

class RouteChoiceTest : public testing::Test {
 protected:
  RouteChoiceTest() {
    routes_.name = "m";
    routes_.rules.salt = "layer";
    routes_.rules.arms = {{2, 0, 3000}, {3, 3000, 1000}, {4, 5000, 1000}};
    routes_.keyless = std::make_shared<std::atomic<uint64_t>>(0);
    for (int64_t number : {1, 2}) routes_.versions[number].servable = MakeServable(number);
    routes_.versions[3].state = "loading";
    routes_.versions[4].servable = MakeServable(4);
    routes_.versions[4].traffic = false;
    routes_.labels = {{"canary", 2}, {"next", 3}, {"spare", 4}};
    routes_.baseline = routes_.versions[1].servable;
  }

  absl::Status Choose(const ModelSpecView& spec, std::optional<std::string> key = std::nullopt) {
    RouteRequest request;
    request.spec = spec;
    request.key = [&](const RoutingRules&) {
      ++asked_;
      return key;
    };
    choice_ = {};
    return ChooseVersion(routes_, request, &choice_);
  }

  std::string KeyIn(uint32_t low, uint32_t high) {
    for (int i = 0;; ++i) {
      const uint32_t bucket = RoutingBucket("layer", absl::StrCat(i));
      if (bucket >= low && bucket < high) return absl::StrCat(i);
    }
  }

  ModelRoutes routes_;
  RouteChoice choice_;
  int asked_ = 0;
};

TEST_F(RouteChoiceTest, NumberAndLabelPinAVersion) {
  ASSERT_TRUE(Choose({"m", 2, "", ""}).ok());
  EXPECT_EQ(choice_.servable->number, 2);
  EXPECT_EQ(choice_.reason, ChoiceReason::kPinned);
  ASSERT_TRUE(Choose({"m", std::nullopt, "canary", ""}).ok());
  EXPECT_EQ(choice_.servable->number, 2);
  EXPECT_EQ(choice_.reason, ChoiceReason::kPinned);
  ASSERT_TRUE(Choose({"m", 2, "canary", ""}).ok());
  EXPECT_TRUE(absl::IsInvalidArgument(Choose({"m", 1, "canary", ""})));
  EXPECT_EQ(asked_, 0) << "the key does not matter then";
}

TEST_F(RouteChoiceTest, MissingVersionsAreNotFoundAndUnreadyOnesUnavailable) {
  EXPECT_TRUE(absl::IsNotFound(Choose({"m", 9, "", ""})));
  EXPECT_TRUE(absl::IsNotFound(Choose({"m", 0, "", ""})));
  EXPECT_TRUE(absl::IsInvalidArgument(Choose({"m", std::nullopt, "nobody", ""}))) << "as TensorFlow Serving";
  EXPECT_TRUE(absl::IsNotFound(Choose({"m", 4, "", ""}))) << "kept without traffic";
  EXPECT_TRUE(absl::IsNotFound(Choose({"m", std::nullopt, "spare", ""})));
  const absl::Status loading = Choose({"m", std::nullopt, "next", ""});
  EXPECT_TRUE(absl::IsUnavailable(loading));
  EXPECT_NE(loading.message().find("loading"), std::string::npos) << loading;
}

TEST_F(RouteChoiceTest, KeysStickToTheirArms) {
  const std::string key = KeyIn(0, 3000);
  for (int i = 0; i < 3; ++i) {
    ASSERT_TRUE(Choose({"m", std::nullopt, "", ""}, key).ok());
    EXPECT_EQ(choice_.servable->number, 2);
    EXPECT_EQ(choice_.reason, ChoiceReason::kArm);
  }
  ASSERT_TRUE(Choose({"m", std::nullopt, "", ""}, KeyIn(6000, 10000)).ok());
  EXPECT_EQ(choice_.servable->number, 1);
  EXPECT_EQ(choice_.reason, ChoiceReason::kBaseline);
}

TEST_F(RouteChoiceTest, AnArmThatCannotServeFallsBackToTheBaseline) {
  for (const std::string& key : {KeyIn(3000, 4000), KeyIn(5000, 6000)}) {
    ASSERT_TRUE(Choose({"m", std::nullopt, "", ""}, key).ok());
    EXPECT_EQ(choice_.servable->number, 1);
    EXPECT_EQ(choice_.reason, ChoiceReason::kFallback);
  }
}

TEST_F(RouteChoiceTest, PausedRoutingSendsAllRequestsToTheBaseline) {
  routes_.rules.paused = true;
  ASSERT_TRUE(Choose({"m", std::nullopt, "", ""}, KeyIn(0, 3000)).ok());
  EXPECT_EQ(choice_.servable->number, 1);
  EXPECT_EQ(choice_.reason, ChoiceReason::kBaseline);
  EXPECT_EQ(asked_, 0);
  ASSERT_TRUE(Choose({"m", 2, "", ""}).ok()) << "a pinned version stays reachable";
}

TEST_F(RouteChoiceTest, RequestsWithoutKeysAreSplitExactly) {
  std::map<int64_t, int> counts;
  for (int i = 0; i < 10000; ++i) {
    ASSERT_TRUE(Choose({"m", std::nullopt, "", ""}).ok());
    ++counts[choice_.servable->number];
  }
  EXPECT_EQ(counts[2], 3000);
  EXPECT_EQ(counts[1], 7000);
  counts.clear();
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(Choose({"m", std::nullopt, "", ""}).ok());
    ++counts[choice_.servable->number];
  }
  EXPECT_NEAR(counts[2], 30, 3) << "and nearly so over a few";
}

TEST_F(RouteChoiceTest, ErrorNamesStateIfThereIsNoBaseline) {
  routes_.baseline = nullptr;
  routes_.baseline_state = "version 1 is loading";
  const absl::Status status = Choose({"m", std::nullopt, "", ""}, KeyIn(6000, 10000));
  EXPECT_TRUE(absl::IsUnavailable(status));
  EXPECT_NE(status.message().find("version 1 is loading"), std::string::npos) << status;
}

TEST(RouteTable, FindsModelsByName) {
  RouteTable table;
  const ModelRoutes* found = nullptr;
  EXPECT_TRUE(absl::IsNotFound(table.Find("", &found)));
  for (const char* name : {"a", "b"}) {
    auto routes = std::make_shared<ModelRoutes>();
    routes->name = name;
    table.Add(std::move(routes));
    ASSERT_TRUE(table.Find(name, &found).ok());
    EXPECT_EQ(found->name, name);
    if (table.models().size() == 1) {
      ASSERT_TRUE(table.Find("", &found).ok()) << "the only one";
      EXPECT_EQ(found->name, "a");
    }
  }
  EXPECT_TRUE(absl::IsInvalidArgument(table.Find("", &found)));
  const absl::Status status = table.Find("c\n", &found);
  EXPECT_TRUE(absl::IsNotFound(status));
  EXPECT_EQ(status.message().find('\n'), std::string::npos) << "as a header can hold it";
}

}  // namespace
}  // namespace processor
