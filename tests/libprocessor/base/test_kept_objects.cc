// SPDX-License-Identifier: Apache-2.0
#include "src/base/kept_objects.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace processor {
namespace {

struct Counted {
  Counted() { ++alive; }
  ~Counted() { --alive; }
  std::atomic<bool> in_use{false};
  static inline std::atomic<int> alive{0};
};

TEST(KeptObjects, ReturnedObjectsAreBorrowedAgain) {
  KeptObjects<Counted> objects;
  EXPECT_EQ(objects.TakeIfAny(), nullptr);
  std::unique_ptr<Counted> object = objects.Take();
  Counted* const address = object.get();
  objects.Keep(std::move(object));
  std::thread([&] {
    object = objects.Take();
    EXPECT_EQ(object.get(), address) << "also by another thread";
  }).join();
  EXPECT_EQ(objects.TakeIfAny(), nullptr);
}

TEST(KeptObjects, ObjectsAreDestroyedWithTheirOwner) {
  {
    KeptObjects<Counted> objects;
    objects.Keep(objects.Take());
    EXPECT_EQ(Counted::alive, 1);
  }
  EXPECT_EQ(Counted::alive, 0);
}

TEST(KeptObjects, NoObjectIsBorrowedTwiceAtOnce) {
  constexpr int kThreads = 8;
  KeptObjects<Counted> objects;
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) {
    threads.emplace_back([&] {
      for (int n = 0; n < 20000; ++n) {
        std::unique_ptr<Counted> object = objects.Take();
        ASSERT_FALSE(object->in_use.exchange(true));
        object->in_use = false;
        objects.Keep(std::move(object));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LE(Counted::alive, static_cast<int>(KeptObjects<Counted>::kPlaces));
}

TEST(KeptObjects, ObjectsForWhichThereIsNoPlaceAreDestroyed) {
  KeptObjects<Counted> objects;
  std::vector<std::unique_ptr<Counted>> borrowed;
  for (int i = 0; i < 200; ++i) borrowed.push_back(objects.Take());
  for (std::unique_ptr<Counted>& object : borrowed) objects.Keep(std::move(object));
  EXPECT_EQ(Counted::alive, static_cast<int>(KeptObjects<Counted>::kPlaces));
}

}  // namespace
}  // namespace processor
