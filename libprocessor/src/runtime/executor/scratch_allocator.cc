// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/executor/scratch_allocator.h"

#include <cstdint>
#include <string>

#include "src/base/byte_budget.h"
#include "src/base/memory_block.h"

namespace processor {
namespace {

static_assert(kBlockAlignment >= tensorflow::Allocator::kAllocatorAlignment);

constexpr size_t kMostUnclaimed = 64 << 10;

class BlockAllocator : public tensorflow::Allocator {
 public:
  /// `budget`: null if nothing is claimed, since the blocks are the model's own.
  explicit BlockAllocator(ByteBudget* budget) : budget_(budget) {}

  std::string Name() override { return "processor_scratch"; }

  void* AllocateRaw(size_t alignment, size_t num_bytes) override {
    if (budget_ == nullptr) return NewLastingBlock(num_bytes, alignment);
    return num_bytes > kMostUnclaimed ? NewClaimedBlock(alignment, num_bytes) : NewBlock(num_bytes, alignment);
  }

  void DeallocateRaw(void* block) override { FreeBlock(block); }

 private:
  void* NewClaimedBlock(size_t alignment, size_t num_bytes) {
    if (num_bytes > size_t{INT64_MAX}) return nullptr;
    const auto bytes = static_cast<int64_t>(num_bytes);
    if (!budget_->Claim(ByteBudget::Use::kRun, bytes)) return nullptr;
    void* const block = NewBlock(num_bytes, alignment);
    if (block == nullptr) {
      budget_->Release(ByteBudget::Use::kRun, bytes);
      return nullptr;
    }
    HandClaimTo(block, budget_, ByteBudget::Use::kRun, bytes);
    return block;
  }

  ByteBudget* const budget_;
};

}  // namespace

tensorflow::Allocator* ScratchAllocator(ScratchUse use) {
  static auto* const model = new BlockAllocator(nullptr);
  static auto* const warm_up = new BlockAllocator(&ByteBudget::WarmUp());
  static auto* const requests = new BlockAllocator(&ByteBudget::Requests());
  return use == ScratchUse::kModel ? model : use == ScratchUse::kWarmUp ? warm_up : requests;
}

}  // namespace processor
