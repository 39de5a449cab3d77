// SPDX-License-Identifier: Apache-2.0
#include "src/codec/feed_arena.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

#include "oracle.h"

namespace processor {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;

bool IsAligned(const Tensor& tensor) {
  return reinterpret_cast<uintptr_t>(tensor.data()) % tensorflow::Allocator::kAllocatorAlignment == 0;
}

/// Makes a tensor in the arena with the contents of `src`.
Tensor CopyInto(FeedArena* arena, const Tensor& src) {
  Tensor dst;
  EXPECT_TRUE(arena->Make(src.dtype(), src.shape(), std::max(1, tensorflow::DataTypeSize(src.dtype())), &dst).ok());
  if (src.dtype() == tensorflow::DT_STRING) {
    for (int64_t i = 0; i < src.NumElements(); ++i) {
      dst.flat<tensorflow::tstring>()(i) = src.flat<tensorflow::tstring>()(i);
    }
  } else if (src.NumElements() > 0) {
    memcpy(dst.data(), src.data(), src.TotalBytes());
  }
  return dst;
}

TEST(FeedArenaTest, TensorsOutliveTheArenaAndEachOther) {
  std::vector<Tensor> expected, made;
  {
    FeedArena arena;
    for (int n = 0; n < 600; ++n) {  // several blocks
      expected.push_back(oracle::RandomTensor(tensorflow::DT_FLOAT, TensorShape({n % 300}), n));
      made.push_back(CopyInto(&arena, expected.back()));
    }
  }
  for (size_t i = 0; i < made.size(); i += 2) made[i] = Tensor();
  for (size_t i = 1; i < made.size(); i += 2) {
    EXPECT_TRUE(oracle::Same(expected[i], made[i])) << i;
    EXPECT_TRUE(made[i].NumElements() == 0 || IsAligned(made[i])) << i;
  }
}

TEST(FeedArenaTest, StringsStartEmptyAndAreDestroyed) {
  FeedArena arena;
  Tensor tensor;
  ASSERT_TRUE(arena.Make(tensorflow::DT_STRING, TensorShape({5}), sizeof(tensorflow::tstring), &tensor).ok());
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(tensor.flat<tensorflow::tstring>()(i).empty());
    tensor.flat<tensorflow::tstring>()(i) = std::string(1000, 'x');  // on the heap: a leak checker sees it if it stays
  }
}

TEST(FeedArenaTest, LargeTensorsHaveSeparateMemory) {
  FeedArena arena;
  Tensor small, large, empty;
  ASSERT_TRUE(arena.Make(tensorflow::DT_FLOAT, TensorShape({4}), 4, &small).ok());
  ASSERT_TRUE(arena.Make(tensorflow::DT_FLOAT, TensorShape({4096}), 4, &large).ok());
  ASSERT_TRUE(arena.Make(tensorflow::DT_FLOAT, TensorShape({4, 0}), 4, &empty).ok());
  EXPECT_EQ(small.TotalBytes(), 16);
  EXPECT_EQ(large.TotalBytes(), 16384);
  EXPECT_EQ(empty.NumElements(), 0);
  EXPECT_EQ(empty.shape(), TensorShape({4, 0}));
  const auto distance = static_cast<const char*>(large.data()) - static_cast<const char*>(small.data());
  EXPECT_GT(std::abs(distance), 8192 - 64);
}

TEST(FeedArenaTest, FailedAllocationIsAnError) {
  FeedArena arena;
  Tensor tensor;
  const absl::Status status =
      arena.Make(tensorflow::DT_DOUBLE, TensorShape({int64_t{1} << 40, int64_t{1} << 18}), 8, &tensor);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
  EXPECT_EQ(status.message(), "no memory for a tensor of shape [1099511627776,262144]");
  ASSERT_TRUE(arena.Make(tensorflow::DT_DOUBLE, TensorShape({3}), 8, &tensor).ok()) << "the next one is unharmed";
}

TEST(FeedArenaTest, AnyThreadMayDestroyTensorsOfABlock) {
  for (int round = 0; round < 200; ++round) {
    std::vector<Tensor> tensors(64);
    {
      FeedArena arena;
      for (Tensor& tensor : tensors) {
        ASSERT_TRUE(arena.Make(tensorflow::DT_INT64, TensorShape({2}), 8, &tensor).ok());
        tensor.flat<int64_t>().setConstant(round);
      }
    }
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; ++t) {
      threads.emplace_back([&tensors, t, round] {
        for (size_t i = t; i < tensors.size(); i += 4) {
          EXPECT_EQ(tensors[i].flat<int64_t>()(1), round);
          tensors[i] = Tensor();
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

TEST(FeedArenaTest, ClaimsLargeMemoryUntilTensorsAreDestroyed) {
  ByteBudget budget(1 << 20);
  Tensor large, small, text;
  {
    FeedArena arena(&budget);
    ASSERT_TRUE(arena.Make(tensorflow::DT_FLOAT, TensorShape({16}), 4, &small).ok());
    EXPECT_EQ(budget.in_use(), 0) << "what does not grow with a request is not claimed";
    ASSERT_TRUE(arena.Make(tensorflow::DT_FLOAT, TensorShape({100000}), 4, &large).ok());
    EXPECT_GE(budget.in_use(), 400000);
    const int64_t before = budget.in_use();
    ASSERT_TRUE(arena.Make(tensorflow::DT_STRING, TensorShape({2}), sizeof(tensorflow::tstring), &text, 50000).ok());
    EXPECT_EQ(budget.in_use() - before, 50000) << "the strings, while the tensor itself shares a small block";
    ASSERT_TRUE(arena.Extend(10000).ok());
    EXPECT_EQ(budget.in_use() - before, 60000);

    Tensor none;
    const absl::Status refused = arena.Make(tensorflow::DT_FLOAT, TensorShape({200000}), 4, &none);
    EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused << ": beside what the request holds it never fits";
    EXPECT_FALSE(none.IsInitialized() && none.NumElements() > 0);
    FeedArena other(&budget);
    const absl::Status later = other.Make(tensorflow::DT_FLOAT, TensorShape({200000}), 4, &none);
    EXPECT_TRUE(absl::IsResourceExhausted(later)) << later;
  }
  EXPECT_GT(budget.in_use(), 0);
  std::thread([&] { large = Tensor(); }).join();
  EXPECT_LT(budget.in_use(), 70000);
  text = Tensor();
  EXPECT_GT(budget.in_use(), 0) << "its block is shared";
  small = Tensor();
  EXPECT_EQ(budget.in_use(), 0);
  EXPECT_EQ(budget.refused(ByteBudget::Use::kTensors), 2u);
}

TEST(FeedArenaTest, BoundsTotalOfRepeatedValues) {
  FeedArena arena;
  EXPECT_TRUE(arena.Repeat(FeedArena::kMostRepeated / 8, 4));
  EXPECT_TRUE(arena.Repeat(size_t{1} << 62, 0));
  EXPECT_FALSE(arena.Repeat(FeedArena::kMostRepeated / 8 + 1, 4));
  EXPECT_FALSE(arena.Repeat(size_t{1} << 62, size_t{1} << 62));
  EXPECT_TRUE(arena.Repeat(FeedArena::kMostRepeated / 8, 4));
  EXPECT_FALSE(arena.Repeat(1, 1));
}

}  // namespace
}  // namespace processor
