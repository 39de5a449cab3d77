// SPDX-License-Identifier: Apache-2.0
// The bytes of the string keys of a segment, one after the other. What is given back is reclaimed when a segment rebuilds
// its index (Segment::Rebuild).
#ifndef ELASTIC_TRAINING_STORAGE_STRING_ARENA_H_
#define ELASTIC_TRAINING_STORAGE_STRING_ARENA_H_

#include <cstddef>
#include <new>
#include <string_view>
#include <vector>

#include "src/storage/row_layout.h"

namespace elastic_training {

class StringArena {
 public:
  /// Longest key [bytes]. So a segment has room for more keys than it keeps before it splits.
  static constexpr size_t kMaxBytes = (1 << 16) - 1;

  std::string_view at(StringPlace place) const { return {bytes_.data() + place.offset, place.size}; }

  StringPlace Add(std::string_view text) {
    if (bytes_.size() + text.size() > UINT32_MAX) throw std::bad_alloc();
    // An eighth more at a time: doubling would leave a third of the memory unused.
    if (bytes_.size() + text.size() > bytes_.capacity()) {
      bytes_.reserve(bytes_.size() + bytes_.size() / 8 + text.size() + 256);
    }
    const StringPlace place{static_cast<uint32_t>(bytes_.size()), static_cast<uint32_t>(text.size())};
    bytes_.insert(bytes_.end(), text.begin(), text.end());
    return place;
  }
  void Remove(StringPlace place) { dead_ += place.size; }

  /// Whether more than half of the bytes belong to keys that are gone.
  bool wasteful() const { return dead_ > 4096 && dead_ > bytes_.size() / 2; }
  size_t bytes() const { return bytes_.capacity(); }

 private:
  std::vector<char> bytes_;
  size_t dead_ = 0;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_STORAGE_STRING_ARENA_H_
