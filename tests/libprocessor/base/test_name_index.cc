// SPDX-License-Identifier: Apache-2.0
#include "src/base/name_index.h"

#include <gtest/gtest.h>

#include <string>

namespace processor {
namespace {

TEST(NameIndex, FindsNothingWhenEmpty) {
  const NameIndex index;
  EXPECT_EQ(index.Find(""), -1);
  EXPECT_EQ(index.Find("x"), -1);
}

TEST(NameIndex, FindsEveryNameAmongMany) {
  NameIndex index;
  for (int i = 0; i < 500; ++i) index.Add("feature_" + std::to_string(i), i);
  for (int i = 0; i < 500; ++i) EXPECT_EQ(index.Find("feature_" + std::to_string(i)), i);
  EXPECT_EQ(index.Find("feature_500"), -1);
  EXPECT_EQ(index.Find("feature_"), -1);
}

TEST(NameIndex, KeepsFirstOfEqualNames) {
  NameIndex index;
  index.Add("x", 3);
  index.Add("x", 4);
  EXPECT_EQ(index.Find("x"), 3);
}

TEST(NameIndex, ComparesWholeNames) {
  NameIndex index;
  const std::string with_nul("a\0b", 3);
  index.Add(with_nul, 1);
  index.Add("", 2);
  EXPECT_EQ(index.Find(with_nul), 1);
  EXPECT_EQ(index.Find("a"), -1);
  EXPECT_EQ(index.Find(""), 2);
}

}  // namespace
}  // namespace processor
