// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/embedding_gather.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "src/kernels/dense_columns.h"
#include "src/kernels/row_fetcher.h"

namespace processor {
namespace {

using Column = EmbeddingBinding::Column;

// What the sum of a row's values is divided by. `counted`: whether there is a value.
float DivisorOf(Combiner combiner, const uint32_t* numbers, const float* weights, size_t n, bool* counted) {
  float sum = 0;
  size_t count = 0;
  for (size_t i = 0; i < n; ++i) {
    if (numbers[i] == kNoRow) continue;
    ++count;
    if (weights != nullptr) sum += combiner == Combiner::kSqrtn ? weights[i] * weights[i] : weights[i];
  }
  *counted = count > 0;
  if (combiner == Combiner::kSum) return 1;
  if (weights == nullptr) sum = static_cast<float>(count);
  return combiner == Combiner::kSqrtn ? std::sqrt(sum) : sum;
}

// Is a row of zeros, which is passed over, multiplied with an infinity or NaN? That is NaN.
bool HasInfiniteZero(const uint32_t* numbers, const float* weights, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    if (numbers[i] >= kFirstSpecialRow && numbers[i] != kNoRow && !std::isfinite(weights[i])) return true;
  }
  return false;
}

}  // namespace

void Gather::WriteLookup(const Column& column, int64_t begin, int64_t end, GatherScratch* scratch,
                         RowFetcher* fetcher) const {
  const PlanColumn& planned = *column.plan;
  const PlanOutput& output = plan.outputs[planned.output];
  const KeyValues& key = request.keys[planned.key];
  const RowSource& source = fetcher->run().source;
  const uint32_t empty_row =
      binding.copies_rows() ? scratch->tiered.empty_row(column.lookup) : request.empty_rows[column.lookup];
  const int64_t repeats = request.Repeats(output);
  const size_t width = output.width;
  const int64_t first = key.Begin(begin);
  uint32_t* numbers = scratch->rows.of(column.lookup);
  float* dst = outputs[planned.output] + begin * repeats * width + planned.offset;

  // One value for each row of the output: pooling it changes nothing, unless there are weights.
  if (key.per_row == repeats && planned.weights < 0) {
    const size_t n = key.Begin(end) - first;
    if (empty_row != kNoRow) std::replace(numbers, numbers + n, kNoRow, empty_row);
    const size_t at_once = RowFetcher::RowsAtOnce(fetcher->run());
    for (size_t i = 0; i < n; i += at_once) {
      const size_t count = std::min(at_once, n - i);
      column.copy(source, numbers + i, count, dst + i * width, width);
      fetcher->Advance(count);
    }
    return;
  }

  if (planned.combiner == Combiner::kNone) {
    const size_t n = key.per_row;
    for (int64_t row = begin; row < end; ++row, numbers += n, dst += width) {
      column.copy(source, numbers, n, dst, source.dim);
      fetcher->Advance(n);
    }
    return;
  }

  const float* weights = nullptr;
  if (planned.weights >= 0) weights = static_cast<const float*>(request.features[planned.weights].data) + first;
  if (planned.positive_weights) {
    const size_t n = key.Begin(end) - first;
    uint32_t* pruned = scratch->pruned.Get(n);
    for (size_t i = 0; i < n; ++i) pruned[i] = weights[i] > 0 ? numbers[i] : kNoRow;
    numbers = pruned;
  }
  for (int64_t row = begin; row < end; ++row, dst += width) {
    const size_t n = key.Begin(row + 1) - key.Begin(row);
    bool counted = false;
    const float divisor = DivisorOf(planned.combiner, numbers, weights, n, &counted);
    if (!counted) {
      column.copy(source, &empty_row, 1, dst, 0);
    } else if (divisor == 0) {
      // As TensorFlow does where weights add up to nothing.
      column.copy(source, &kNoRow, 1, dst, 0);
    } else {
      column.pool(source, numbers, weights, n, 1 / divisor, dst);
      if (weights != nullptr && HasInfiniteZero(numbers, weights, n)) {
        std::fill(dst, dst + source.dim, std::numeric_limits<float>::quiet_NaN());
      }
    }
    numbers += n;
    if (weights != nullptr) weights += n;
    fetcher->Advance(n);
  }
}

void Gather::FillGaps(int64_t begin, int64_t end) const {
  for (const EmbeddingBinding::Gap& gap : binding.gaps()) {
    const PlanOutput& output = plan.outputs[gap.output];
    const int64_t repeats = request.Repeats(output);
    const absl::Span<const float> given = request.initial[gap.output];
    const float* initial = given.empty() ? nullptr : given.data() + gap.offset;
    float* dst = outputs[gap.output] + begin * repeats * output.width + gap.offset;
    for (int64_t row = begin * repeats; row < end * repeats; ++row, dst += output.width) {
      if (initial == nullptr) {
        std::memset(dst, 0, sizeof(float) * gap.width);
      } else {
        std::memcpy(dst, initial, sizeof(float) * gap.width);
      }
    }
  }
}

absl::Status Gather::Rows(int64_t begin, int64_t end, GatherScratch* scratch) const {
  absl::Status found = scratch->rows.Find(plan, steps, binding, request, begin, end);
  if (!found.ok()) return found;
  if (binding.copies_rows()) {
    if (absl::Status fetched = scratch->tiered.Fetch(binding, request, begin, end, &scratch->rows); !fetched.ok()) {
      return fetched;
    }
  }
  scratch->runs.clear();
  for (const Column& column : binding.columns()) {
    if (column.plan->kind != ColumnKind::kLookup) continue;
    const KeyValues& key = request.keys[column.plan->key];
    RowSource source = column.source;
    if (source.rows == nullptr) source.rows = scratch->tiered.rows(column.lookup);
    scratch->runs.push_back({source, column.row_bytes, scratch->rows.of(column.lookup),
                             static_cast<size_t>(key.Begin(end) - key.Begin(begin))});
  }
  RowFetcher fetcher(scratch->runs.data(), scratch->runs.size());
  FillGaps(begin, end);
  for (const Column& column : binding.columns()) {
    const PlanColumn& planned = *column.plan;
    if (planned.kind == ColumnKind::kLookup) {
      WriteLookup(column, begin, end, scratch, &fetcher);
      fetcher.NextRun();
      continue;
    }
    const int64_t width = plan.outputs[planned.output].width;
    float* dst = outputs[planned.output] + begin * width + planned.offset;
    const FeatureView& view = request.features[planned.feature];
    if (planned.kind == ColumnKind::kCopy) {
      CopyNumbers(view, begin, end, planned.width, planned.accumulate, dst, width);
    } else {
      MultiplyByMatrix(view, begin, end, request.matrices[&column - binding.columns().data()], planned.width,
                       planned.accumulate, dst, width);
    }
  }
  return absl::OkStatus();
}

}  // namespace processor
