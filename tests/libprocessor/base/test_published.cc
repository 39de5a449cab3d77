// SPDX-License-Identifier: Apache-2.0
#include "src/base/published.h"

#include <gtest/gtest.h>

#include <atomic>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

namespace processor {
namespace {

TEST(Published, ReadReturnsTheLastObject) {
  Published<int> published;
  EXPECT_EQ(published.Read(), nullptr);
  EXPECT_EQ(published.Exchange(std::make_shared<int>(1)), nullptr);
  EXPECT_EQ(*published.Read(), 1);
  EXPECT_EQ(*published.Exchange(std::make_shared<int>(2)), 1);
  EXPECT_EQ(*published.Read(), 2);
  EXPECT_EQ(*published.Exchange(nullptr), 2);
  EXPECT_EQ(published.Read(), nullptr);
}

TEST(Published, ReplacedObjectsHaveOneReferenceOnceNoReaderHoldsThem) {
  Published<int> published(std::make_shared<int>(1));
  std::shared_ptr<int> reader = published.Read();
  const std::shared_ptr<int> replaced = published.Exchange(std::make_shared<int>(2));
  EXPECT_GT(replaced.use_count(), 1) << "a reader holds it";
  EXPECT_EQ(*reader, 1);
  reader.reset();
  EXPECT_EQ(replaced.use_count(), 1);
}

TEST(Published, ReadersHoldWhatTheyReadWhileItIsReplaced) {
  struct Value {
    explicit Value(int number) : first(number), second(-number) {}
    ~Value() { first = second = 1; }  // both positive: a reader would see it
    int first, second;
  };
  Published<Value> published(std::make_shared<Value>(0));
  std::atomic<bool> ended{false};
  std::atomic<int> newest{0};  // that any of them has read
  std::vector<std::thread> readers;
  for (int i = 0; i < 4; ++i) {
    readers.emplace_back([&] {
      while (!ended) {
        int before = newest;
        const std::shared_ptr<Value> value = published.Read();
        ASSERT_EQ(value->first, -value->second);
        ASSERT_GE(value->first, before) << "an older object after a newer one";
        while (before < value->first && !newest.compare_exchange_weak(before, value->first)) {
        }
      }
    });
  }
  for (int number = 1; number <= 10000; ++number) published.Exchange(std::make_shared<Value>(number));
  ended = true;
  for (std::thread& reader : readers) reader.join();
}

}  // namespace
}  // namespace processor
