// SPDX-License-Identifier: Apache-2.0
#include "src/tables/row_caches.h"

namespace processor {

RowCaches::RowCaches(uint64_t bytes, const RowRuns& runs) : runs_(runs) {
  const auto whole = [&](size_t run) { return runs_[run].rows * RowCache::PlaceBytes(runs_[run].bytes); };
  double all = 0;
  for (size_t run = 0; run < runs_.size(); ++run) all += whole(run);
  for (size_t run = 0; run < runs_.size(); ++run) {
    const auto part = static_cast<uint64_t>(static_cast<double>(bytes) * (whole(run) / all));
    caches_.push_back(std::make_unique<RowCache>(part, runs_[run].bytes, runs_[run].rows, runs_[run].first));
  }
}

size_t RowCaches::Get(absl::Span<const uint32_t> numbers, size_t stride, uint8_t* dst, uint32_t* missing) {
  size_t count = 0;
  for (const auto& cache : caches_) count += cache->Get(numbers, stride, dst, missing + count);
  return count;
}

size_t RowCaches::FindMissing(absl::Span<const uint32_t> numbers, uint32_t* missing) const {
  size_t count = 0;
  for (const auto& cache : caches_) count += cache->FindMissing(numbers, missing + count);
  return count;
}

uint64_t RowCaches::places() const {
  uint64_t places = 0;
  for (const auto& cache : caches_) places += cache->places();
  return places;
}

uint64_t RowCaches::used() const {
  uint64_t used = 0;
  for (const auto& cache : caches_) used += cache->used();
  return used;
}

uint64_t RowCaches::bytes() const {
  uint64_t bytes = 0;
  for (const auto& cache : caches_) bytes += cache->bytes();
  return bytes;
}

}  // namespace processor
