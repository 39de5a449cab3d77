// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/cache_domains.h"

#include "gtest/gtest.h"
#include "simulated_caches.h"

namespace processor {
namespace {

TEST(CacheDomains, GroupsCpusByTheirCache) {
  const CacheDomains caches(SixteenCaches());
  EXPECT_EQ(caches.count(), 16);
  EXPECT_EQ(caches.Of(8), caches.Of(15));
  EXPECT_NE(caches.Of(7), caches.Of(8));
  EXPECT_EQ(caches.MostOf({0, 1, 8, 9, 10, 127}), 3);
  EXPECT_EQ(caches.Of(-1), 0);
  EXPECT_EQ(caches.Of(4096), 0);
}

TEST(CacheDomains, CpusOfAnUnknownMachineAreOneGroup) {
  const CacheDomains caches("/nonexistent");
  EXPECT_EQ(caches.count(), 1);
  EXPECT_EQ(caches.MostOf({0, 5, 9}), 3);
}

}  // namespace
}  // namespace processor
