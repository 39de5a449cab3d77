// SPDX-License-Identifier: Apache-2.0
// The positions of a batch, grouped by the segment of their keys, so that a batch locks each segment once.
#ifndef ELASTIC_TRAINING_STORAGE_KEY_GROUPS_H_
#define ELASTIC_TRAINING_STORAGE_KEY_GROUPS_H_

#include <cstddef>
#include <cstdint>
#include <shared_mutex>
#include <vector>

#include "src/storage/segment_directory.h"

namespace elastic_training {

class KeyGroups {
 public:
  struct Group {
    Segment* segment;
    uint32_t begin, end;  // in order()
  };

  /// Groups positions by their hashes `hashes[position]`; equal groups keep the order of `positions`.
  void Build(const SegmentDirectory::Array& array, const uint64_t* hashes, const std::vector<uint32_t>& positions);

  const std::vector<Group>& groups() const { return groups_; }
  /// The positions, group after group.
  const std::vector<uint32_t>& order() const { return order_; }

  /// Calls `body(group)` for each group with its segment locked, shared or exclusively. Segments that are locked by others
  /// come last, and `start` says where to begin: so threads with equal segments do not follow each other.
  template <bool kShared, typename Body>
  void ForEachLocked(size_t start, const Body& body) {
    waiting_.clear();
    for (size_t i = 0; i < groups_.size(); ++i) {
      const Group& group = groups_[(start + i) % groups_.size()];
      SegmentMutex& mutex = group.segment->mutex;
      if (kShared ? !mutex.try_lock_shared() : !mutex.try_lock()) {
        waiting_.push_back(&group);
      } else if constexpr (kShared) {
        const std::shared_lock<SegmentMutex> lock(mutex, std::adopt_lock);
        body(group);
      } else {
        const std::lock_guard<SegmentMutex> lock(mutex, std::adopt_lock);
        body(group);
      }
    }
    for (const Group* group : waiting_) {
      if constexpr (kShared) {
        const std::shared_lock<SegmentMutex> lock(group->segment->mutex);
        body(*group);
      } else {
        const std::lock_guard<SegmentMutex> lock(group->segment->mutex);
        body(*group);
      }
    }
  }

 private:
  void Sort(const SegmentDirectory::Array& array, const uint64_t* hashes, const std::vector<uint32_t>& positions);

  std::vector<Group> groups_;
  std::vector<uint32_t> order_, starts_;
  std::vector<uint64_t> pairs_;
  std::vector<const Group*> waiting_;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_STORAGE_KEY_GROUPS_H_
