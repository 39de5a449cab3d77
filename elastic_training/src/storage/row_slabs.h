// SPDX-License-Identifier: Apache-2.0
// Memory of rows of one size. Rows have numbers and never move; memory grows by slabs of 16 MiB or more, whose pages cost
// memory only when they are used. Segments take chunks of rows, and reuse the rows that they give back.
#ifndef ELASTIC_TRAINING_STORAGE_ROW_SLABS_H_
#define ELASTIC_TRAINING_STORAGE_ROW_SLABS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

namespace elastic_training {

class RowSlabs {
 public:
  /// Rows that a segment takes at a time, and for which there is one byte of change marks.
  static constexpr uint32_t kChunkRows = 32;

  /// `most_rows`: a multiple of 2^20.
  explicit RowSlabs(size_t row_bytes, uint32_t most_rows = (1u << 31) - (1u << 20));
  ~RowSlabs();
  RowSlabs(const RowSlabs&) = delete;
  RowSlabs& operator=(const RowSlabs&) = delete;

  /// Takes the next chunk and returns the number of its first row. Any thread may call this.
  /// \throws std::bad_alloc if the machine has no memory, or the table has `most_rows`.
  uint32_t TakeChunk();

  /// Returns the address of a row that TakeChunk has given.
  char* row(uint32_t number) const { return slab(number) + static_cast<size_t>(number & mask_) * row_bytes_; }
  /// Returns the marks of a row's chunk: those of publishers that its rows may have.
  std::atomic<uint8_t>& marks(uint32_t number) const {
    return reinterpret_cast<std::atomic<uint8_t>*>(slab(number) + marks_offset_)[(number & mask_) / kChunkRows];
  }
  /// Returns for each chunk whether it has the mark, and clears it.
  std::vector<bool> TakeMarks(uint8_t mark);
  /// Whether TakeChunk may have given this row; for numbers that come from outside.
  bool contains(uint32_t number) const { return number < taken_.load(std::memory_order_acquire); }

  size_t row_bytes() const { return row_bytes_; }
  /// Number of rows of all chunks that were taken.
  uint32_t rows() const { return taken_.load(std::memory_order_acquire); }
  /// Memory of the chunks that were taken [bytes].
  size_t bytes() const { return rows() * (row_bytes_ + 1.0 / kChunkRows); }

 private:
  using Directory = std::unique_ptr<std::atomic<char*>[]>;

  char* slab(uint32_t number) const {
    return directory_.load(std::memory_order_acquire)[number >> shift_].load(std::memory_order_relaxed);
  }
  void AddSlab();
  /// Has the memory prepared that comes after a chunk.
  void PrepareAhead(uint32_t first);

  const size_t row_bytes_;
  const uint32_t most_rows_;
  uint32_t shift_ = 10, mask_;
  size_t marks_offset_, slab_bytes_;
  std::atomic<std::atomic<char*>*> directory_{nullptr};
  std::atomic<uint32_t> taken_{0};
  std::mutex growth_;
  // Former directories stay, because other threads may still read them.
  std::vector<Directory> directories_;
  size_t directory_size_ = 0, slab_count_ = 0;
  // Up to where huge pages were asked for: bytes of all slabs, one after the other.
  size_t prepared_ = 0;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_STORAGE_ROW_SLABS_H_
