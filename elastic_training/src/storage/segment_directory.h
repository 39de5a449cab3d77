// SPDX-License-Identifier: Apache-2.0
// Finds the segment of a hash by its highest bits. The directory doubles when a segment splits whose bits it has all used;
// readers take no lock: they lock the segment that they find, and look again if it has split meanwhile.
#ifndef ELASTIC_TRAINING_STORAGE_SEGMENT_DIRECTORY_H_
#define ELASTIC_TRAINING_STORAGE_SEGMENT_DIRECTORY_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "src/storage/segment.h"

namespace elastic_training {

class SegmentDirectory {
 public:
  /// Segments of a new table: enough for the threads of a machine not to wait for each other in small tables.
  static constexpr int kFirstDepth = 4;

  /// An array of 2^depth segments; neighbors may be the same.
  class Array {
   public:
    explicit Array(int depth) : depth_(depth), segments_(new std::atomic<Segment*>[size_t{1} << depth]()) {}

    int depth() const { return depth_; }
    size_t size() const { return size_t{1} << depth_; }
    size_t entry(uint64_t hash) const { return hash >> (64 - depth_); }
    Segment* at(size_t entry) const { return segments_[entry].load(std::memory_order_acquire); }
    void set(size_t entry, Segment* segment) { segments_[entry].store(segment, std::memory_order_release); }

   private:
    const int depth_;
    const std::unique_ptr<std::atomic<Segment*>[]> segments_;
  };

  explicit SegmentDirectory(RowStore* store);

  /// Returns the present array, which stays valid.
  const Array& array() const { return *array_.load(std::memory_order_acquire); }

  /// Splits a segment whose lock the caller has, exclusively. \throws std::bad_alloc without a change.
  void Split(Segment* segment);

  /// Memory of the segments themselves and of the directory [bytes].
  size_t bytes() const;

 private:
  std::atomic<Array*> array_{nullptr};
  mutable std::mutex growth_;
  std::vector<std::unique_ptr<Array>> arrays_;
  std::vector<std::unique_ptr<Segment>> segments_;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_STORAGE_SEGMENT_DIRECTORY_H_
