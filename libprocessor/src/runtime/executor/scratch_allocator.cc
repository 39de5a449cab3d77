// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/executor/scratch_allocator.h"

#include <cstdint>
#include <cstdlib>
#include <new>
#include <string>
#include <type_traits>

#include "src/base/byte_budget.h"

namespace processor {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// Sanitizers must see every allocation, so nothing is cached for them.
constexpr bool kCaches = false;
#else
constexpr bool kCaches = true;
#endif

constexpr size_t kAlignment = tensorflow::Allocator::kAllocatorAlignment;
constexpr size_t kMaxCachedBlock = 64 << 10;
constexpr size_t kMaxCachedBytes = 1 << 20;  // per thread

// The bytes before a block. Blocks are aligned to 64 bytes, so this space would be lost otherwise.
struct Header {
  void* start;         // the pointer from malloc
  Header* next;        // the next block of a cache
  int32_t size_class;  // -1 if the block is not cached
  int64_t claimed;     // bytes claimed from `budget`
  ByteBudget* budget;
};
static_assert(sizeof(Header) <= kAlignment);

Header* HeaderOf(void* block) { return reinterpret_cast<Header*>(static_cast<char*>(block) - kAlignment); }

// Returns the smallest class that holds `bytes` (at most kMaxCachedBlock): 64 bytes, then four steps per doubling.
constexpr int ClassOf(size_t bytes) {
  if (bytes <= kAlignment) return 0;
  const size_t above = bytes - 1;
  const int octave = 63 - __builtin_clzll(above);  // 6 for 65..128
  const int quarter = static_cast<int>((above >> (octave - 2)) & 3);
  return 1 + (octave - 6) * 4 + quarter;
}

constexpr size_t SizeOfClass(int size_class) {
  if (size_class == 0) return kAlignment;
  const int octave = (size_class - 1) / 4 + 6, quarter = (size_class - 1) % 4;
  return (size_t{1} << octave) + (size_t{1} << (octave - 2)) * (quarter + 1);
}

constexpr int kSizeClasses = ClassOf(kMaxCachedBlock) + 1;
static_assert(SizeOfClass(kSizeClasses - 1) == kMaxCachedBlock && SizeOfClass(ClassOf(65)) >= 65);

void* NewBlock(size_t alignment, size_t bytes, int size_class) {
  const size_t room = alignment < kAlignment ? kAlignment : alignment;
  void* start = nullptr;
  if (bytes > SIZE_MAX - 2 * room || posix_memalign(&start, room, bytes + room) != 0) return nullptr;
  void* block = static_cast<char*>(start) + room;
  *HeaderOf(block) = Header{start, nullptr, size_class, 0, nullptr};
  return block;
}

// The blocks that one thread has freed. It has no destructor, so it lives as long as its thread: other objects of the
// thread may free blocks in their destructors.
struct Cache {
  Header* blocks[kSizeClasses];
  size_t bytes;
  bool ended;  // blocks are no longer cached
};
static_assert(std::is_trivially_destructible_v<Cache>);
thread_local Cache cache;

// Empties its thread's cache when the thread ends.
struct Drainer {
  ~Drainer() {
    cache.ended = true;
    for (Header*& list : cache.blocks) {
      while (list != nullptr) {
        Header* header = list;
        list = header->next;
        std::free(header->start);
      }
    }
  }
};

// Registers this thread's cache, so that it is emptied when the thread ends.
void WillDrain() {
  thread_local const Drainer drainer;
  (void)drainer;
}

class ThreadCachingAllocator : public tensorflow::Allocator {
 public:
  /// `budget`: null if nothing is claimed.
  explicit ThreadCachingAllocator(ByteBudget* budget) : budget_(budget) {}

  std::string Name() override { return "processor_scratch"; }

  void* AllocateRaw(size_t alignment, size_t num_bytes) override {
    if (num_bytes > kMaxCachedBlock && budget_ != nullptr) return NewClaimedBlock(alignment, num_bytes);
    if (!kCaches || num_bytes > kMaxCachedBlock || alignment > kAlignment) return NewBlock(alignment, num_bytes, -1);
    const int size_class = ClassOf(num_bytes);
    if (Header* header = cache.blocks[size_class]) {
      cache.blocks[size_class] = header->next;
      cache.bytes -= SizeOfClass(size_class);
      return reinterpret_cast<char*>(header) + kAlignment;
    }
    return NewBlock(kAlignment, SizeOfClass(size_class), size_class);
  }

  void DeallocateRaw(void* block) override {
    if (block == nullptr) return;
    Header* header = HeaderOf(block);
    if (header->size_class >= 0) {
      const size_t size = SizeOfClass(header->size_class);
      if (!cache.ended && cache.bytes + size <= kMaxCachedBytes) {
        WillDrain();
        header->next = cache.blocks[header->size_class];
        cache.blocks[header->size_class] = header;
        cache.bytes += size;
        return;
      }
    }
    ByteBudget* const budget = header->budget;
    const int64_t claimed = header->claimed;
    std::free(header->start);
    if (claimed > 0) budget->Release(ByteBudget::Use::kRun, claimed);
  }

 private:
  void* NewClaimedBlock(size_t alignment, size_t num_bytes) {
    if (num_bytes > size_t{INT64_MAX}) return nullptr;
    const auto bytes = static_cast<int64_t>(num_bytes);
    if (!budget_->Claim(ByteBudget::Use::kRun, bytes)) return nullptr;
    void* const block = NewBlock(alignment, num_bytes, -1);
    if (block == nullptr) {
      budget_->Release(ByteBudget::Use::kRun, bytes);
      return nullptr;
    }
    HeaderOf(block)->claimed = bytes;
    HeaderOf(block)->budget = budget_;
    return block;
  }

  ByteBudget* const budget_;
};

}  // namespace

tensorflow::Allocator* ScratchAllocator(ScratchUse use) {
  static auto* const model = new ThreadCachingAllocator(nullptr);
  static auto* const warm_up = new ThreadCachingAllocator(&ByteBudget::WarmUp());
  static auto* const requests = new ThreadCachingAllocator(&ByteBudget::Requests());
  return use == ScratchUse::kModel ? model : use == ScratchUse::kWarmUp ? warm_up : requests;
}

}  // namespace processor
