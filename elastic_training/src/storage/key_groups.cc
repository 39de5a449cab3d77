// SPDX-License-Identifier: Apache-2.0
#include "src/storage/key_groups.h"

#include <algorithm>

namespace elastic_training {

void KeyGroups::Build(const SegmentDirectory::Array& array, const uint64_t* hashes,
                      const std::vector<uint32_t>& positions) {
  groups_.clear();
  order_.resize(positions.size());
  const auto add = [&](size_t entry, uint32_t begin, uint32_t end) {
    Segment* const segment = array.at(entry);
    if (!groups_.empty() && groups_.back().segment == segment) {
      groups_.back().end = end;
    } else {
      groups_.push_back({segment, begin, end});
    }
  };
  if (positions.size() * 4 < array.size()) {
    // Few keys: sorting them costs less than passing over all entries.
    Sort(array, hashes, positions);
    for (uint32_t begin = 0, end; begin < pairs_.size(); begin = end) {
      const size_t entry = pairs_[begin] >> 32;
      for (end = begin; end < pairs_.size() && pairs_[end] >> 32 == entry; ++end) {
        order_[end] = static_cast<uint32_t>(pairs_[end]);
      }
      add(entry, begin, end);
    }
    return;
  }
  starts_.assign(array.size() + 1, 0);
  for (const uint32_t position : positions) ++starts_[array.entry(hashes[position]) + 1];
  for (size_t entry = 0; entry < array.size(); ++entry) starts_[entry + 1] += starts_[entry];
  for (size_t entry = 0; entry < array.size(); ++entry) {
    if (starts_[entry] < starts_[entry + 1]) add(entry, starts_[entry], starts_[entry + 1]);
  }
  for (const uint32_t position : positions) order_[starts_[array.entry(hashes[position])]++] = position;
}

void KeyGroups::Sort(const SegmentDirectory::Array& array, const uint64_t* hashes,
                     const std::vector<uint32_t>& positions) {
  pairs_.clear();
  for (const uint32_t position : positions) {
    pairs_.push_back(static_cast<uint64_t>(array.entry(hashes[position])) << 32 | position);
  }
  std::sort(pairs_.begin(), pairs_.end());
}

}  // namespace elastic_training
