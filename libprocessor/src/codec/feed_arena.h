// SPDX-License-Identifier: Apache-2.0
// Memory for the many small tensors of one request.
//
// A one-row request has dozens of tensors of a few bytes; TensorFlow's allocator takes two allocations and a mutex for
// each, which is most of what decoding costs. Here they share blocks: a tensor holds a share of the block that it lies
// in, and the last one to go frees the block, on whatever thread that is. Large tensors have a block of their own, so
// that a long-lived small one never keeps much memory alive. If memory is short, this says so at once; TensorFlow's
// allocator retries for ten seconds, then goes on with a null pointer.
#ifndef PROCESSOR_CODEC_FEED_ARENA_H_
#define PROCESSOR_CODEC_FEED_ARENA_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/allocation_description.pb.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/tensor.h"

namespace processor {

class FeedArena {
 public:
  FeedArena() = default;
  FeedArena(const FeedArena&) = delete;
  FeedArena& operator=(const FeedArena&) = delete;
  /// The tensors made stay valid.
  ~FeedArena();

  /// Makes an uninitialised tensor (strings: empty ones) of a dtype that is a number or DT_STRING.
  /// \return RESOURCE_EXHAUSTED if memory is short.
  absl::Status Make(tensorflow::DataType dtype, const tensorflow::TensorShape& shape, size_t element_bytes,
                    tensorflow::Tensor* dst);

 private:
  struct Block;
  class SharedBuffer;

  static constexpr size_t kAlignment = tensorflow::Allocator::kAllocatorAlignment;  // what kernels expect
  static constexpr size_t kBlockBytes = 8192;
  static constexpr size_t kLargestShared = 1024;  // of one tensor with what goes before it
  static constexpr size_t kMostElements = size_t{1} << 56;

  static constexpr size_t RoundUp(size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

  /// Memory for a tensor and what goes before it, and the block that it lies in; nullptr if memory is short.
  char* Take(size_t bytes, Block** block);
  void CloseBlock();

  Block* block_ = nullptr;  // the one that small tensors share
  char* next_ = nullptr;
  char* end_ = nullptr;
  int taken_ = 0;
};

/// Head of a block; the rest of its memory follows.
struct FeedArena::Block {
  // Counts down from this; the arena takes off what it did not hand out once the block is full.
  static constexpr int kManyShares = 1 << 30;

  explicit Block(int shares) : shares(shares) {}

  static Block* Make(size_t bytes, int shares) {
    void* memory = std::aligned_alloc(kAlignment, bytes);
    return memory == nullptr ? nullptr : new (memory) Block(shares);
  }
  static void Drop(Block* block, int shares) {
    if (block->shares.fetch_sub(shares, std::memory_order_acq_rel) == shares) std::free(block);
  }

  char* begin() { return reinterpret_cast<char*>(this) + kAlignment; }

  std::atomic<int> shares;
};

/// Lies in a block, before its data, with a pointer to the block before it: [Block*][SharedBuffer] ... [data].
class FeedArena::SharedBuffer final : public tensorflow::TensorBuffer {
 public:
  SharedBuffer(void* data, size_t size, size_t strings) : TensorBuffer(data), size_(size), strings_(strings) {
    std::uninitialized_default_construct_n(base<tensorflow::tstring>(), strings_);
  }
  ~SharedBuffer() override { std::destroy_n(base<tensorflow::tstring>(), strings_); }

  static void* operator new(size_t, void* place) { return place; }
  /// Called when the last reference to the tensor has gone and the object is no more: its memory is the block's.
  static void operator delete(void* place) { Block::Drop(BlockOf(place), 1); }

  static Block*& BlockOf(void* place) { return static_cast<Block**>(place)[-1]; }

  size_t size() const override { return size_; }
  TensorBuffer* root_buffer() override { return this; }
  void FillAllocationDescription(tensorflow::AllocationDescription* description) const override {
    description->set_requested_bytes(static_cast<int64_t>(size_));
    description->set_allocator_name("processor");
  }

 private:
  size_t size_;
  size_t strings_;
};

inline FeedArena::~FeedArena() { CloseBlock(); }

inline void FeedArena::CloseBlock() {
  if (block_ != nullptr) Block::Drop(block_, Block::kManyShares - taken_);
  block_ = nullptr;
  taken_ = 0;
}

inline char* FeedArena::Take(size_t bytes, Block** block) {
  if (bytes > kLargestShared) {
    *block = Block::Make(kAlignment + bytes, 1);
    return *block == nullptr ? nullptr : (*block)->begin();
  }
  if (block_ == nullptr || bytes > static_cast<size_t>(end_ - next_)) {
    CloseBlock();
    block_ = Block::Make(kBlockBytes, Block::kManyShares);
    if (block_ == nullptr) return nullptr;
    next_ = block_->begin();
    end_ = reinterpret_cast<char*>(block_) + kBlockBytes;
  }
  ++taken_;
  *block = block_;
  return std::exchange(next_, next_ + bytes);
}

inline absl::Status FeedArena::Make(tensorflow::DataType dtype, const tensorflow::TensorShape& shape,
                                    size_t element_bytes, tensorflow::Tensor* dst) {
  const auto count = static_cast<size_t>(shape.num_elements());
  if (count == 0) {
    *dst = tensorflow::Tensor(dtype, shape);  // has no memory
    return absl::OkStatus();
  }
  constexpr size_t kHead = RoundUp(sizeof(Block*) + sizeof(SharedBuffer));
  char* memory = nullptr;
  Block* block = nullptr;
  if (count <= kMostElements) memory = Take(kHead + RoundUp(count * element_bytes), &block);
  if (memory == nullptr) {
    return absl::ResourceExhaustedError(absl::StrCat("no memory for a tensor of shape ", shape.DebugString()));
  }
  char* const place = memory + sizeof(Block*);
  SharedBuffer::BlockOf(place) = block;
  const size_t strings = dtype == tensorflow::DT_STRING ? count : 0;
  *dst = tensorflow::Tensor(dtype, shape,
                            tensorflow::core::RefCountPtr<tensorflow::TensorBuffer>(
                                new (place) SharedBuffer(memory + kHead, count * element_bytes, strings)));
  return absl::OkStatus();
}

}  // namespace processor

#endif  // PROCESSOR_CODEC_FEED_ARENA_H_
