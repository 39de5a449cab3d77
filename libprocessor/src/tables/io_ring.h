// SPDX-License-Identifier: Apache-2.0
// A ring of io_uring for reads, with the system calls themselves: the library has few users, and liburing is one more
// dependency.
#ifndef PROCESSOR_TABLES_IO_RING_H_
#define PROCESSOR_TABLES_IO_RING_H_

#include <linux/io_uring.h>

#include <chrono>
#include <cstddef>
#include <cstdint>

#include "src/tables/read_batch.h"

namespace processor {

/// One thread uses it: the kernel ends the reads of a thread that ends. At most as many reads may be added or on the way as
/// the ring was opened for.
class IoRing {
 public:
  IoRing() = default;
  ~IoRing();
  IoRing(const IoRing&) = delete;
  IoRing& operator=(const IoRing&) = delete;

  /// Returns 0 or an error number: the kernel or a container may refuse it.
  int Open(unsigned reads);

  /// Adds a read, which Enter() gives to the kernel. The memory of the piece must stay until the read has ended.
  void Add(const ReadPiece& piece, uint64_t id);

  /// Gives the kernel what was added, and waits until `least` reads have ended, or something else needs the thread.
  /// Returns 0 or an error number; the kernel may have taken some of the reads.
  int Enter(size_t least);
  /// Does the same, but waits for more than one only for a time, where the kernel can (Linux 5.11), and else for one.
  int EnterFor(size_t least, std::chrono::microseconds most);

  /// Returns the number of reads that were added and that the kernel has not taken.
  size_t added() const { return added_; }
  /// Removes the reads that the kernel has not taken, which are the last ones. Returns their number.
  size_t TakeBack();

  /// Calls `ended(id, result)` for each read that has ended: its bytes, or an error number below zero.
  /// Returns their number.
  template <typename Ended>
  size_t Collect(const Ended& ended) {
    auto* const head = rings_.At<unsigned>(offsets_.cq_off.head);
    const unsigned end = __atomic_load_n(rings_.At<unsigned>(offsets_.cq_off.tail), __ATOMIC_ACQUIRE);
    const unsigned mask = *rings_.At<unsigned>(offsets_.cq_off.ring_mask);
    const auto* const done = rings_.At<io_uring_cqe>(offsets_.cq_off.cqes);
    unsigned at = *head;
    const unsigned begin = at;
    for (; at != end; ++at) ended(done[at & mask].user_data, done[at & mask].res);
    __atomic_store_n(head, at, __ATOMIC_RELEASE);
    return end - begin;
  }

 private:
  // One queue of memory that the kernel and the process share.
  class Mapping {
   public:
    Mapping() = default;
    ~Mapping();
    Mapping(const Mapping&) = delete;
    Mapping& operator=(const Mapping&) = delete;

    bool Map(int descriptor, size_t size, uint64_t offset);
    template <typename T>
    T* At(size_t offset) const {
      return reinterpret_cast<T*>(data_ + offset);
    }

   private:
    uint8_t* data_ = nullptr;
    size_t size_ = 0;
  };

  int Enter(size_t least, unsigned flags, const void* argument, size_t size);

  int descriptor_ = -1;
  size_t added_ = 0;  // that the kernel has not taken
  Mapping rings_, entries_;
  io_uring_params offsets_ = {};
};

}  // namespace processor

#endif  // PROCESSOR_TABLES_IO_RING_H_
