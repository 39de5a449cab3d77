// SPDX-License-Identifier: Apache-2.0
#include "src/base/memory_block.h"

#include <cstdlib>
#include <new>
#include <type_traits>

#include "src/base/mapped_memory.h"

namespace processor {
namespace {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
// Sanitizers must see every allocation, so nothing is kept for them.
constexpr bool kKeeps = false;
#else
constexpr bool kKeeps = true;
#endif

constexpr size_t kMostKept = 256 << 10;     // of one block
constexpr size_t kMostKeptInAll = 2 << 20;  // per thread

// The bytes before a block. Blocks are aligned, so this space would be lost otherwise.
struct Header {
  void* start;   // the pointer from malloc or MapMemory()
  Header* next;  // the next block that is kept
  ByteBudget* budget;
  int64_t claimed;     // bytes claimed from `budget`
  size_t mapped;       // bytes at `start` that are mapped, 0 if they are of malloc
  int32_t size_class;  // -1 if the block is never kept
  ByteBudget::Use use;
};
static_assert(sizeof(Header) <= kBlockAlignment);

Header* HeaderOf(void* block) { return reinterpret_cast<Header*>(static_cast<char*>(block) - kBlockAlignment); }

// Returns the smallest class that holds `bytes` (at most kMostKept): 64 bytes, then four steps per doubling.
constexpr int ClassOf(size_t bytes) {
  if (bytes <= kBlockAlignment) return 0;
  const size_t above = bytes - 1;
  const int octave = 63 - __builtin_clzll(above);  // 6 for 65..128
  const int quarter = static_cast<int>((above >> (octave - 2)) & 3);
  return 1 + (octave - 6) * 4 + quarter;
}

constexpr size_t SizeOfClass(int size_class) {
  if (size_class == 0) return kBlockAlignment;
  const int octave = (size_class - 1) / 4 + 6, quarter = (size_class - 1) % 4;
  return (size_t{1} << octave) + (size_t{1} << (octave - 2)) * (quarter + 1);
}

constexpr int kSizeClasses = ClassOf(kMostKept) + 1;
static_assert(SizeOfClass(kSizeClasses - 1) == kMostKept && SizeOfClass(ClassOf(65)) >= 65);

// Returns the block that begins `room` bytes after `start`, with a header before it.
void* BlockAt(void* start, size_t room, size_t mapped, int size_class) {
  void* const block = static_cast<char*>(start) + room;
  *HeaderOf(block) = Header{start, nullptr, nullptr, 0, mapped, size_class, ByteBudget::Use::kRun};
  return block;
}

// Blocks lie so far behind their start that the header fits before them.
size_t RoomFor(size_t alignment) { return alignment < kBlockAlignment ? kBlockAlignment : alignment; }

void* AllocateBlock(size_t bytes, size_t alignment, int size_class) {
  const size_t room = RoomFor(alignment);
  void* start = nullptr;
  if (bytes > SIZE_MAX - 2 * room || posix_memalign(&start, room, bytes + room) != 0) return nullptr;
  return BlockAt(start, room, 0, size_class);
}

void FreeStart(const Header& header) {
  if (header.mapped > 0) {
    UnmapMemory(header.start, header.mapped);
  } else {
    std::free(header.start);
  }
}

// The blocks that one thread has freed. It has no destructor, so it lives as long as its thread: other objects of the
// thread may free blocks in their destructors.
struct KeptBlocks {
  Header* blocks[kSizeClasses];
  size_t bytes;
  bool ended;  // the thread keeps no more blocks
};
static_assert(std::is_trivially_destructible_v<KeptBlocks>);
thread_local KeptBlocks kept;

// Frees what its thread has kept when the thread ends.
struct Drainer {
  ~Drainer() {
    kept.ended = true;
    for (Header*& list : kept.blocks) {
      while (list != nullptr) {
        Header* header = list;
        list = header->next;
        std::free(header->start);
      }
    }
  }
};

// Makes sure that the calling thread's blocks are freed when it ends.
void WillDrain() {
  thread_local const Drainer drainer;
  (void)drainer;
}

}  // namespace

void* NewBlock(size_t bytes, size_t alignment) {
  if (!kKeeps || bytes > kMostKept || alignment > kBlockAlignment) return AllocateBlock(bytes, alignment, -1);
  const int size_class = ClassOf(bytes);
  if (Header* header = kept.blocks[size_class]) {
    kept.blocks[size_class] = header->next;
    kept.bytes -= SizeOfClass(size_class);
    return reinterpret_cast<char*>(header) + kBlockAlignment;
  }
  return AllocateBlock(SizeOfClass(size_class), kBlockAlignment, size_class);
}

void* NewLastingBlock(size_t bytes, size_t alignment) {
  if (!kKeeps || bytes < kLeastMapped) return NewBlock(bytes, alignment);
  const size_t room = RoomFor(alignment);
  if (bytes > SIZE_MAX - room) return nullptr;
  void* const start = MapMemory(bytes + room, room);
  return start == nullptr ? nullptr : BlockAt(start, room, bytes + room, -1);
}

void FreeBlock(void* block) {
  if (block == nullptr) return;
  Header* const header = HeaderOf(block);
  const int64_t claimed = header->claimed;
  ByteBudget* const budget = header->budget;
  const ByteBudget::Use use = header->use;
  header->claimed = 0;
  const size_t size = header->size_class < 0 ? 0 : SizeOfClass(header->size_class);
  if (size > 0 && !kept.ended && kept.bytes + size <= kMostKeptInAll) {
    WillDrain();
    header->next = kept.blocks[header->size_class];
    kept.blocks[header->size_class] = header;
    kept.bytes += size;
  } else {
    FreeStart(*header);
  }
  if (claimed > 0) budget->Release(use, claimed);
}

void HandClaimTo(void* block, ByteBudget* budget, ByteBudget::Use use, int64_t bytes) {
  Header* const header = HeaderOf(block);
  header->budget = budget;
  header->use = use;
  header->claimed += bytes;
}

}  // namespace processor
