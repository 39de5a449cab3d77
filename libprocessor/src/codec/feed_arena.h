// SPDX-License-Identifier: Apache-2.0
// Memory for the many small tensors of one request.
//
// A one-row request has dozens of tensors of a few bytes. TensorFlow's allocator needs two allocations and a mutex for
// each, which is most of the cost of decoding. Here small tensors share blocks: each holds a share of its block, and the
// last one frees the block, on any thread. Large tensors have their own blocks, so that a small tensor that lives long
// does not keep much memory. Threads keep the blocks (memory_block.h). If there is no memory, the arena fails at once;
// TensorFlow's allocator retries for ten seconds and then continues with a null pointer.
//
// Tensors above a few kilobytes are claimed from the budget of requests (byte_budget.h) before they are allocated; the
// claim is released with their block.
#ifndef PROCESSOR_CODEC_FEED_ARENA_H_
#define PROCESSOR_CODEC_FEED_ARENA_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "src/base/byte_budget.h"
#include "src/base/memory_block.h"
#include "tensorflow/core/framework/allocation_description.pb.h"
#include "tensorflow/core/framework/allocator.h"
#include "tensorflow/core/framework/tensor.h"

namespace processor {

/// Makes the tensors of one request. The decoder of the request owns it and uses it on one thread; the tensors may be
/// used on any thread and outlive it.
class FeedArena {
 public:
  explicit FeedArena(ByteBudget* budget = &ByteBudget::Requests()) : budget_(budget) {}
  FeedArena(const FeedArena&) = delete;
  FeedArena& operator=(const FeedArena&) = delete;
  /// Tensors that were made stay valid.
  ~FeedArena();

  /// Makes an uninitialized tensor (or one of empty strings) of a numeric dtype or DT_STRING. `string_bytes`: the memory
  /// that its strings will allocate in addition.
  /// \return RESOURCE_EXHAUSTED if memory or the budget is short, INVALID_ARGUMENT if it could never suffice.
  absl::Status Make(tensorflow::DataType dtype, const tensorflow::TensorShape& shape, size_t element_bytes,
                    tensorflow::Tensor* dst, size_t string_bytes = 0);

  /// Claims more memory for the strings of the last tensor than Make() has claimed.
  absl::Status Extend(size_t string_bytes);

  /// Returns whether so many bytes may be filled with repeated values that the request does not contain: kMostRepeated
  /// in total, because a few bytes of a request can ask for many.
  bool Repeat(size_t count, size_t bytes_each);
  static constexpr size_t kMostRepeated = size_t{64} << 20;

 private:
  struct Block;
  class SharedBuffer;

  static constexpr size_t kAlignment = tensorflow::Allocator::kAllocatorAlignment;  // what kernels expect
  static constexpr size_t kBlockBytes = 8192;
  static constexpr size_t kLargestShared = 1024;  // of one tensor with what goes before it
  static constexpr size_t kMostElements = size_t{1} << 56;
  static constexpr size_t kLeastClaim = 4096;

  static constexpr size_t RoundUp(size_t size) { return (size + kAlignment - 1) / kAlignment * kAlignment; }

  /// Returns memory for a tensor and its head, and its block; nullptr if there is no memory.
  char* Take(size_t bytes, Block** block);
  void CloseBlock();
  /// Claims so many bytes unless they are too few to count; `claimed` is set to the claim.
  absl::Status Claim(size_t bytes, size_t* claimed);

  ByteBudget* const budget_;
  size_t claimed_ = 0;      // for all blocks
  size_t repeated_ = 0;     // bytes
  Block* last_ = nullptr;   // of the tensor made last
  Block* block_ = nullptr;  // the one that small tensors share
  char* next_ = nullptr;
  char* end_ = nullptr;
  int taken_ = 0;
};

/// The head of a block; the rest of its memory follows.
struct FeedArena::Block {
  // A block starts with this number of shares; when it is full, the arena subtracts those that no tensor got.
  static constexpr int kManyShares = 1 << 30;

  explicit Block(int shares) : shares(shares) {}

  static Block* Make(size_t bytes, int shares) {
    void* memory = NewBlock(bytes, kAlignment);
    return memory == nullptr ? nullptr : new (memory) Block(shares);
  }
  static void Drop(Block* block, int shares) {
    if (block->shares.fetch_sub(shares, std::memory_order_acq_rel) == shares) FreeBlock(block);
  }

  char* begin() { return reinterpret_cast<char*>(this) + kAlignment; }

  std::atomic<int> shares;
};

/// The buffer of a tensor, which lies in a block after a pointer to the block and before its data:
/// [Block*][SharedBuffer] ... [data].
class FeedArena::SharedBuffer final : public tensorflow::TensorBuffer {
 public:
  SharedBuffer(void* data, size_t size, size_t strings) : TensorBuffer(data), size_(size), strings_(strings) {
    std::uninitialized_default_construct_n(base<tensorflow::tstring>(), strings_);
  }
  ~SharedBuffer() override { std::destroy_n(base<tensorflow::tstring>(), strings_); }

  static void* operator new(size_t, void* place) { return place; }
  /// Called after the last reference to the tensor is gone and the object is destroyed. The memory belongs to the block.
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

inline absl::Status FeedArena::Claim(size_t bytes, size_t* claimed) {
  *claimed = 0;
  if (bytes < kLeastClaim) return absl::OkStatus();
  const auto more = static_cast<int64_t>(bytes);
  if (!budget_->Claim(ByteBudget::Use::kTensors, more)) {
    return budget_->Refusal(ByteBudget::Use::kTensors, "tensors", more, static_cast<int64_t>(claimed_));
  }
  claimed_ += bytes;
  *claimed = bytes;
  return absl::OkStatus();
}

inline absl::Status FeedArena::Extend(size_t string_bytes) {
  size_t claimed = 0;
  if (absl::Status s = Claim(string_bytes, &claimed); !s.ok()) return s;
  HandClaimTo(last_, budget_, ByteBudget::Use::kTensors, static_cast<int64_t>(claimed));
  return absl::OkStatus();
}

inline bool FeedArena::Repeat(size_t count, size_t bytes_each) {
  if (bytes_each > 0 && count > (kMostRepeated - repeated_) / bytes_each) return false;
  repeated_ += count * bytes_each;
  return true;
}

inline absl::Status FeedArena::Make(tensorflow::DataType dtype, const tensorflow::TensorShape& shape,
                                    size_t element_bytes, tensorflow::Tensor* dst, size_t string_bytes) {
  const auto count = static_cast<size_t>(shape.num_elements());
  if (count == 0) {
    *dst = tensorflow::Tensor(dtype, shape);  // has no memory
    return absl::OkStatus();
  }
  constexpr size_t kHead = RoundUp(sizeof(Block*) + sizeof(SharedBuffer));
  char* memory = nullptr;
  Block* block = nullptr;
  size_t claimed = 0;
  if (count <= kMostElements) {
    const size_t size = kHead + RoundUp(count * element_bytes);
    absl::Status s = Claim((size > kLargestShared ? size : 0) + string_bytes, &claimed);
    if (!s.ok()) return absl::Status(s.code(), absl::StrCat("shape ", shape.DebugString(), ": ", s.message()));
    memory = Take(size, &block);
  }
  if (memory == nullptr) {
    if (claimed > 0) budget_->Release(ByteBudget::Use::kTensors, static_cast<int64_t>(claimed));
    return absl::ResourceExhaustedError(absl::StrCat("no memory for a tensor of shape ", shape.DebugString()));
  }
  last_ = block;
  if (claimed > 0) HandClaimTo(block, budget_, ByteBudget::Use::kTensors, static_cast<int64_t>(claimed));
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
