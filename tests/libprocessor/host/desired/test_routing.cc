// SPDX-License-Identifier: Apache-2.0
#include "src/host/desired/routing.h"

#include <gtest/gtest.h>

#include <string>

namespace processor {
namespace {

using std::string_literals::operator""s;

struct Vector {
  std::string salt, key;
  uint32_t bucket;
};

// Computed from the formula of docs/model_host.md by a program of a few lines that shares no code with ours. The same
// stand in tests/serving_proxy/experiments/test_assign.py.
const Vector kVectors[] = {
    {"", "", 7227},
    {"", "0", 2051},
    {"ranking", "user-1", 7677},
    {"ranking", "user-2", 6885},
    {"2026-11", "17", 502},
    {"2026-11", "-9223372036854775808", 775},
    {"a", "bc", 8723},
    {"ab", "c", 7831},
    {"\xc3\xa4", "\xd0\xba\xd0\xbb\xd1\x8e\xd1\x87", 8241},
    {"s", "\0"s, 9009},
};

TEST(Routing, FixedVectors) {
  for (const Vector& vector : kVectors) {
    EXPECT_EQ(RoutingBucket(vector.salt, vector.key), vector.bucket)
        << "'" << vector.salt << "', '" << vector.key << "'";
  }
}

TEST(Routing, EveryByteCounts) {
  std::string all;
  for (int i = 0; i < 256; ++i) all.push_back(static_cast<char>(i));
  EXPECT_EQ(RoutingBucket("salt", all), 7010u);
  EXPECT_NE(RoutingBucket("salt", all.substr(0, 255)), 7010u);
}

TEST(Routing, BucketsAreInRangeAndReachBothEnds) {
  bool first = false, last = false;
  for (int i = 0; i < 200000; ++i) {
    const uint32_t bucket = RoutingBucket("layer", std::to_string(i));
    ASSERT_LT(bucket, kRoutingBuckets);
    first = first || bucket == 0;
    last = last || bucket == kRoutingBuckets - 1;
  }
  EXPECT_TRUE(first);
  EXPECT_TRUE(last);
}

TEST(Routing, AnArmTakesItsBucketsAndNoOthers) {
  const std::vector<RoutingArm> arms = {{4, 0, 1000}, {5, 2500, 1}, {6, 9000, 1000}};
  const auto version = [&](uint32_t bucket) {
    const RoutingArm* arm = ArmFor(bucket, arms);
    return arm == nullptr ? -1 : arm->version;
  };
  EXPECT_EQ(version(0), 4);
  EXPECT_EQ(version(999), 4);
  EXPECT_EQ(version(1000), -1);
  EXPECT_EQ(version(2499), -1);
  EXPECT_EQ(version(2500), 5);
  EXPECT_EQ(version(2501), -1);
  EXPECT_EQ(version(9000), 6);
  EXPECT_EQ(version(9999), 6);
}

TEST(Routing, AnArmWithoutWeightTakesNothing) {
  EXPECT_EQ(ArmFor(7, {{4, 7, 0}}), nullptr);
  EXPECT_EQ(ArmFor(7, {}), nullptr);
}

TEST(Routing, ARampKeepsUsersInTheirArm) {
  for (int i = 0; i < 20000; ++i) {
    const uint32_t bucket = RoutingBucket("ramp", std::to_string(i));
    if (ArmFor(bucket, {{4, 500, 1000}}) != nullptr) {
      ASSERT_NE(ArmFor(bucket, {{4, 500, 3000}}), nullptr);
    }
  }
}

}  // namespace
}  // namespace processor
