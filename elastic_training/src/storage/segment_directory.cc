// SPDX-License-Identifier: Apache-2.0
#include "src/storage/segment_directory.h"

namespace elastic_training {

SegmentDirectory::SegmentDirectory(RowStore* store) {
  arrays_.push_back(std::make_unique<Array>(kFirstDepth));
  for (size_t prefix = 0; prefix < arrays_[0]->size(); ++prefix) {
    segments_.push_back(std::make_unique<Segment>(store, kFirstDepth, prefix));
    arrays_[0]->set(prefix, segments_.back().get());
  }
  array_.store(arrays_[0].get(), std::memory_order_release);
}

void SegmentDirectory::Split(Segment* segment) {
  const std::lock_guard<std::mutex> lock(growth_);
  Array* array = array_.load(std::memory_order_relaxed);
  segments_.reserve(segments_.size() + 1);
  if (segment->depth() == array->depth()) {
    auto larger = std::make_unique<Array>(array->depth() + 1);
    for (size_t i = 0; i < larger->size(); ++i) larger->set(i, array->at(i / 2));
    arrays_.push_back(std::move(larger));
    array = arrays_.back().get();
    array_.store(array, std::memory_order_release);
  }
  segments_.push_back(segment->Split());
  Segment* const upper = segments_.back().get();
  // The upper half of the entries that led to the segment.
  const uint64_t last = segment->end();
  const size_t entries = size_t{1} << (array->depth() - upper->depth());
  for (size_t i = 0; i < entries; ++i) array->set(array->entry(last) + i, upper);
}

size_t SegmentDirectory::bytes() const {
  const std::lock_guard<std::mutex> lock(growth_);
  size_t bytes = segments_.size() * sizeof(Segment);
  for (const auto& array : arrays_) bytes += array->size() * sizeof(Segment*);
  return bytes;
}

}  // namespace elastic_training
