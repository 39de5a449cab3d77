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

// Numbers without those of values whose weight is not above 0.
uint32_t* Pruned(const uint32_t* numbers, const float* weights, size_t n, GatherScratch* scratch) {
  uint32_t* pruned = scratch->pruned.Get(n);
  for (size_t i = 0; i < n; ++i) pruned[i] = weights[i] > 0 ? numbers[i] : kNoRow;
  return pruned;
}

// Whether products are pooled: unless each value has a row of the output of its own, and none is left out.
bool Pools(const EmbeddingPlan& plan, const PlanColumn& planned, const KeyValues& values, int64_t repeats) {
  const PlanKey& key = plan.keys[planned.key];
  const bool left_out = key.ignore != IgnoreKind::kNothing || key.ignore_negative;
  const bool single = values.per_row == repeats && planned.weights < 0 && !left_out;
  return planned.combiner != Combiner::kNone && !single;
}

// Calls `visit(row, first, n)` for the values of rows [begin, end) of the batch in chunks, which do not reach beyond the
// values of a row if `by_row`. `first` counts from the first value of row `begin`.
template <class Visit>
void VisitChunks(const KeyValues& key, int64_t begin, int64_t end, bool by_row, size_t at_once, const Visit& visit) {
  const int64_t step = by_row ? 1 : end - begin, before = key.Begin(begin);
  for (int64_t row = begin; row < end; row += step) {
    const auto last = static_cast<size_t>(key.Begin(row + step) - before);
    for (auto first = static_cast<size_t>(key.Begin(row) - before); first < last; first += at_once) {
      visit(row, first, std::min(at_once, last - first));
    }
  }
}

}  // namespace

// The runs of rows in the order in which they are read.
void Gather::AddRuns(const Column& column, int64_t begin, int64_t end, GatherScratch* scratch) const {
  const KeyValues& key = request.keys[column.plan->key];
  const int64_t repeats = request.Repeats(plan.outputs[column.plan->output]);
  const bool by_row = key.per_row != repeats || Pools(plan, *column.plan, key, repeats);
  const auto add = [&](RowSource source, uint32_t row_bytes, int lookup, size_t first, size_t n) {
    if (source.rows == nullptr) source.rows = scratch->tiered.rows(lookup);
    scratch->runs.push_back({source, row_bytes, scratch->rows.of(lookup) + first, n});
  };
  if (column.factors.empty()) {
    const auto n = static_cast<size_t>(key.Begin(end) - key.Begin(begin));
    return add(column.source, column.row_bytes, column.lookup, 0, n);
  }
  VisitChunks(key, begin, end, by_row, RowProducts::AtOnce(column.source.dim), [&](int64_t, size_t first, size_t n) {
    add(column.source, column.row_bytes, column.lookup, first, n);
    for (const EmbeddingBinding::Factor& factor : column.factors) {
      add(factor.source, factor.row_bytes, factor.lookup, first, n);
    }
  });
}

void Gather::WriteProducts(const Column& column, int64_t begin, int64_t end, GatherScratch* scratch,
                           RowFetcher* fetcher) const {
  const PlanColumn& planned = *column.plan;
  const PlanOutput& output = plan.outputs[planned.output];
  const KeyValues& key = request.keys[planned.key];
  const int64_t first_value = key.Begin(begin), repeats = request.Repeats(output);
  const size_t dim = column.source.dim, width = output.width;
  float* const dst = outputs[planned.output] + begin * repeats * width + planned.offset;
  const bool pooled = Pools(plan, planned, key, repeats), by_row = key.per_row != repeats || pooled;
  const float* weights = nullptr;
  if (planned.weights >= 0) weights = static_cast<const float*>(request.features[planned.weights].data) + first_value;
  const uint32_t* numbers = scratch->rows.of(column.lookup);
  if (planned.positive_weights) numbers = Pruned(numbers, weights, key.Begin(end) - first_value, scratch);
  if (pooled && !planned.accumulate) {
    for (int64_t row = begin; row < end; ++row) std::memset(dst + (row - begin) * width, 0, sizeof(float) * dim);
  }
  const CopyRowsFn add = BestRowKernels().add[static_cast<int>(RowType::kFloat32)];
  const PoolRowsFn pool = BestRowKernels().add_pooled[static_cast<int>(RowType::kFloat32)];
  float divisor = 0;
  bool counted = false;
  VisitChunks(
      key, begin, end, by_row, RowProducts::AtOnce(column.source.dim), [&](int64_t row, size_t first, size_t n) {
        if (pooled) {
          const size_t of_row = key.Begin(row) - first_value;
          if (first == of_row) {
            divisor = DivisorOf(planned.combiner, numbers + first, weights == nullptr ? nullptr : weights + first,
                                key.Begin(row + 1) - key.Begin(row), &counted);
          }
          const RowSource products = scratch->products.Make(column, numbers + first, n, fetcher);
          if (!counted || divisor == 0) return;
          pool(products, scratch->products.numbers(), weights == nullptr ? nullptr : weights + first, n, 1 / divisor,
               dst + (row - begin) * width);
          return;
        }
        // Values of one row of the batch are side by side, unless each has a row of the output.
        float* to = dst + first * width;
        if (by_row) to = dst + (row - begin) * width + (first - (key.Begin(row) - first_value)) * dim;
        const size_t stride = by_row ? dim : width;
        if (!planned.accumulate) return RowProducts::Write(column, n, to, stride, fetcher);
        const RowSource products = scratch->products.Make(column, numbers + first, n, fetcher);
        add(products, scratch->products.numbers(), n, to, stride);
      });
}

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
  if (planned.positive_weights) numbers = Pruned(numbers, weights, key.Begin(end) - first, scratch);
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
    AddRuns(column, begin, end, scratch);
  }
  RowFetcher fetcher(scratch->runs.data(), scratch->runs.size());
  FillGaps(begin, end);
  for (const Column& column : binding.columns()) {
    const PlanColumn& planned = *column.plan;
    if (!column.factors.empty()) {
      WriteProducts(column, begin, end, scratch, &fetcher);
      continue;
    }
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
