// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/batching/session_places.h"

#include <gtest/gtest.h>

namespace processor {
namespace {

TEST(SessionPlaces, AllPlacesAreFreeAtFirst) {
  const SessionPlaces places(3, 2);
  EXPECT_TRUE(places.any_free());
  EXPECT_EQ(places.num_free(), 6);
}

TEST(SessionPlaces, TakesThePreferredSessionWhileItHasAFreePlace) {
  SessionPlaces places(3, 2);
  EXPECT_EQ(places.Take(1), 1);
  EXPECT_EQ(places.Take(1), 1);
  EXPECT_EQ(places.num_free(), 4);
}

TEST(SessionPlaces, TakesTheNextSessionIfThePreferredOneIsBusy) {
  SessionPlaces places(3, 1);
  EXPECT_EQ(places.Take(2), 2);
  EXPECT_EQ(places.Take(2), 0) << "the first session follows the last one";
  EXPECT_EQ(places.Take(2), 1);
}

TEST(SessionPlaces, AcceptsAnyNumberAsPreferredSession) {
  SessionPlaces places(3, 1);
  EXPECT_EQ(places.Take(5), 2) << "modulo the number of sessions";
  EXPECT_EQ(places.Take(-1), 0) << "any session";
}

TEST(SessionPlaces, ReturnsMinusOneIfNoPlaceIsFree) {
  SessionPlaces places(2, 1);
  places.Take(0);
  places.Take(0);
  EXPECT_FALSE(places.any_free());
  EXPECT_EQ(places.Take(0), -1);
  EXPECT_EQ(places.Take(-1), -1);
  EXPECT_EQ(places.num_free(), 0);
}

TEST(SessionPlaces, TakesAFreedPlaceAgain) {
  SessionPlaces places(2, 1);
  places.Take(0);
  places.Take(0);
  places.Free(1);
  EXPECT_EQ(places.num_free(), 1);
  EXPECT_EQ(places.Take(0), 1);
  EXPECT_FALSE(places.any_free());
}

}  // namespace
}  // namespace processor
