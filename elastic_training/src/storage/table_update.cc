// SPDX-License-Identifier: Apache-2.0
// Updates of an ElasticTable. The gradients of equal keys are summed in the order of their positions, each multiplied with
// its scale first; then each distinct row gets one step of the optimizer.
#include <algorithm>

#include "src/storage/elastic_table.h"
#include "src/storage/finite_rows.h"

namespace elastic_training {
namespace {

// Rows that the optimizer gets at once; their memory is asked for while it works on the block before.
constexpr size_t kUpdateBlock = 16;

}  // namespace

const float* ElasticTable::Gradient(const UpdateRequest& request, const KeyScratch& scratch, uint32_t position) const {
  const uint32_t sum = scratch.sum_of[position];
  if (sum != kNoRow) return &scratch.sums[sum * layout().dim];
  const size_t row = request.gradient_of == nullptr ? position : request.gradient_of[position];
  return request.gradients + row * layout().dim;
}

UpdateResult ElasticTable::SumGradients(const UpdateRequest& request, KeyScratch* scratch) {
  const size_t dim = layout().dim, count = request.keys.count;
  scratch->pending.clear();
  scratch->sums.clear();
  scratch->sum_of.assign(count, kNoRow);
  // A sum is needed where a key occurs again or its gradient is scaled.
  const auto needs_sum = [&](size_t i) {
    return request.firsts[i] != static_cast<int32_t>(i) || (request.scales != nullptr && request.scales[i] != 1.0f);
  };
  uint32_t sums = 0;
  for (size_t i = 0; i < count; ++i) {
    if (request.places[i] < 0 || !needs_sum(i)) continue;
    uint32_t& sum = scratch->sum_of[request.firsts[i]];
    if (sum == kNoRow) sum = sums++;
  }
  scratch->sums.assign(sums * dim, 0.0f);
  for (size_t i = 0; i < count && sums != 0; ++i) {
    if (request.places[i] < 0) continue;
    const uint32_t sum = scratch->sum_of[request.firsts[i]];
    if (sum == kNoRow) continue;
    const size_t row = request.gradient_of == nullptr ? i : request.gradient_of[i];
    AddScaled(request.gradients + row * dim, request.scales == nullptr ? 1.0f : request.scales[i], dim,
              &scratch->sums[sum * dim]);
  }
  UpdateResult result;
  uint64_t refused = 0;
  for (size_t i = 0; i < count; ++i) {
    if (request.places[i] < 0 || request.firsts[i] != static_cast<int32_t>(i)) continue;
    const uint32_t position = static_cast<uint32_t>(i);
    if (AllUsable(Gradient(request, *scratch, position), dim)) {
      scratch->pending.push_back(position);
      continue;
    }
    ++refused;
    if (result.not_finite < 0) result.not_finite = static_cast<int64_t>(i);
  }
  if (!config_.stop_on_nan) result.not_finite = -1;
  if (refused != 0) refused_updates_.fetch_add(refused, std::memory_order_relaxed);
  return result;
}

UpdateResult ElasticTable::Update(const UpdateRequest& request) {
  KeyScratch& scratch = KeyScratch::OfThread();
  scratch.Hash(request.keys);
  UpdateResult result = SumGradients(request, &scratch);
  if (result.not_finite >= 0) return result;
  const OptimizerStep step{request.hyper, step_.fetch_add(1, std::memory_order_relaxed) + 1};
  const size_t distinct = scratch.pending.size();
  ForEachGroup<false>(&scratch, [&](Segment* segment, const uint32_t* positions, size_t count, std::vector<uint32_t>*) {
    result.updated += UpdateGroup(request, &scratch, segment, positions, count, step);
  });
  updated_.fetch_add(result.updated, std::memory_order_relaxed);
  if (result.updated != distinct) dropped_updates_.fetch_add(distinct - result.updated, std::memory_order_relaxed);
  return result;
}

size_t ElasticTable::UpdateGroup(const UpdateRequest& request, KeyScratch* scratch, Segment* segment,
                                 const uint32_t* positions, size_t count, const OptimizerStep& step) {
  float* rows[kUpdateBlock];
  const float* gradients[kUpdateBlock];
  uint32_t numbers[kUpdateBlock];
  uint64_t hashes[kUpdateBlock];
  RowOutcome outcomes[kUpdateBlock];
  const size_t row_bytes = layout().full_bytes;
  const auto prefetch = [&](size_t begin) {
    for (size_t i = begin; i < std::min(begin + kUpdateBlock, count); ++i) {
      const uint32_t row = static_cast<uint32_t>(request.places[positions[i]]);
      if (IsRecord(row) || !store_.full.contains(row)) continue;
      const char* const address = store_.address(row);
      for (size_t b = 0; b < row_bytes; b += 64) __builtin_prefetch(address + b, /*rw=*/1);
      __builtin_prefetch(address + row_bytes - 1, /*rw=*/1);
    }
  };
  prefetch(0);
  size_t updated = 0;
  for (size_t begin = 0; begin < count; begin += kUpdateBlock) {
    prefetch(begin + kUpdateBlock);
    size_t block = 0;
    for (size_t i = begin; i < std::min(begin + kUpdateBlock, count); ++i) {
      const uint32_t position = positions[i];
      const KeyRef key = request.keys.at(position, scratch->hashes[position]);
      uint32_t row = static_cast<uint32_t>(request.places[position]);
      // Rows on SSD have higher numbers than these.
      const bool known = IsRecord(row) ? store_.records.contains(row & ~kRecordBit) : store_.full.contains(row);
      // Between lookup and update the row may have been evicted, or have come back elsewhere.
      if (!known || !segment->IsKey(row, key)) row = segment->Find(key);
      if (row != kNoRow) row = MoveIn(segment, key, row);
      if (row != kNoRow && IsRecord(row)) {
        row = store_.header(row).Has(kReleasedFlag) ? segment->MakeFull(key.hash, row) : kNoRow;
      }
      if (row == kNoRow) continue;
      segment->Keep(row);
      rows[block] = store_.weights(row);
      gradients[block] = Gradient(request, *scratch, position);
      hashes[block] = key.hash;
      numbers[block++] = row;
    }
    store_.optimizer.Apply(rows, gradients, block, step, outcomes);
    for (size_t i = 0; i < block; ++i) {
      RowHeader& header = store_.header(numbers[i]);
      // A caller with wrong `firsts` may have passed a row twice.
      if (!header.Has(kLiveFlag)) continue;
      store_.MarkDirty(numbers[i], &header);
      if (!store_.optimizer.tells_outcomes()) continue;
      segment->SetZero(&header, outcomes[i] != RowOutcome::kNonzero);
      if (outcomes[i] != RowOutcome::kRelease) continue;
      segment->Release(hashes[i], numbers[i]);
      released_.fetch_add(1, std::memory_order_relaxed);
    }
    updated += block;
  }
  return updated;
}

}  // namespace elastic_training
