// SPDX-License-Identifier: Apache-2.0
// Memory that grows at the end of a range of addresses, so that what is in it never moves.
#ifndef PROCESSOR_LIVE_COMMITTED_MEMORY_H_
#define PROCESSOR_LIVE_COMMITTED_MEMORY_H_

#include <cstddef>
#include <cstdint>

namespace processor {

/// Owns addresses, and the memory of those that are committed. One thread uses it; any thread may read what is committed.
class CommittedMemory {
 public:
  CommittedMemory() = default;
  ~CommittedMemory();
  CommittedMemory(const CommittedMemory&) = delete;
  CommittedMemory& operator=(const CommittedMemory&) = delete;

  /// Takes addresses for `bytes`, a multiple of a page.
  bool Reserve(size_t bytes);
  void Release();
  /// Leaves the first bytes to the caller, a multiple of a page. Before the first Commit().
  void GrowFrom(size_t begin) { begin_ = end_ = begin; }

  /// Makes the bytes up to `end` writable; they are zeros at first. \return false if there is no memory.
  bool Commit(size_t end);

  /// Gives the pages behind `begin` back; they are zeros when they are used again.
  void Drop(size_t begin) noexcept;

  uint8_t* data() const { return data_; }

 private:
  uint8_t* data_ = nullptr;
  size_t bytes_ = 0;
  size_t begin_ = 0;
  size_t end_ = 0;  // of what is committed
};

}  // namespace processor

#endif  // PROCESSOR_LIVE_COMMITTED_MEMORY_H_
