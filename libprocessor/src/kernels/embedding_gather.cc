// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/embedding_gather.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/kernels/dense_columns.h"
#include "src/kernels/row_fetcher.h"

namespace processor {
namespace {

using Column = EmbeddingBinding::Column;
using Lookup = EmbeddingBinding::Lookup;

// Numbers of rows of a direct table whose rows are all there; false: some key is not.
bool DirectRows(const int64_t* keys, size_t n, uint64_t rows, uint32_t* numbers) {
  bool beyond = false;
  for (size_t i = 0; i < n; ++i) {
    beyond |= static_cast<uint64_t>(keys[i]) >= rows;
    numbers[i] = static_cast<uint32_t>(keys[i]);
  }
  return !beyond;
}

// What the sum of a row's values is multiplied by. `counted`: whether there is a value.
float ScaleOf(Combiner combiner, const uint32_t* numbers, const float* weights, size_t n, bool* counted) {
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
  const float divisor = combiner == Combiner::kSqrtn ? std::sqrt(sum) : sum;
  return divisor == 0 ? 0 : 1 / divisor;
}

}  // namespace

absl::Status Gather::RefuseKey(int key, int64_t position, const EmbeddingTable& table) const {
  const KeyValues& values = request.keys[key];
  const void* value = static_cast<const char*>(values.values) + position * steps[key].value_size();
  std::string shown;
  uint8_t none;
  if (steps[key].passes_strings()) {
    const auto& text = *static_cast<const tensorflow::tstring*>(value);
    shown =
        absl::StrCat("'", absl::CHexEscape(absl::string_view(text.data(), std::min<size_t>(text.size(), 100))), "'");
  } else if (steps[key].gives_strings()) {
    tensorflow::tstring text;
    steps[key].Strings(value, 1, &text, &none);
    shown = absl::StrCat("'", absl::string_view(text.data(), text.size()), "'");
  } else {
    int64_t number = 0;
    steps[key].Numbers(value, 1, &number, &none);
    shown = absl::StrCat(number);
  }
  return absl::InvalidArgumentError(absl::StrCat("embedding group: feature ", plan.keys[key].feature, ": key ", shown,
                                                 " at position ", position, ", expected one that table ", table.path(),
                                                 " holds"));
}

absl::Status Gather::FindRows(int64_t begin, int64_t end, GatherScratch* scratch) const {
  const absl::Span<const Lookup> lookups = binding.lookups();
  size_t all = 0, most = 0;
  for (const Lookup& lookup : lookups) {
    const KeyValues& values = request.keys[lookup.key];
    const size_t n = values.Begin(end) - values.Begin(begin);
    all += n;
    most = std::max(most, n);
  }
  uint32_t* numbers = scratch->rows.Get(all);
  int64_t* keys = scratch->keys.Get(most);
  uint8_t* none = scratch->none.Get(most);
  scratch->lookups.resize(lookups.size());

  int computed = -1;
  bool any_none = false;
  const tensorflow::tstring* strings = nullptr;
  for (size_t l = 0; l < lookups.size(); ++l) {
    const Lookup& lookup = lookups[l];
    const KeySteps& make = steps[lookup.key];
    const KeyValues& values = request.keys[lookup.key];
    const int64_t first = values.Begin(begin);
    const size_t n = values.Begin(end) - first;
    if (lookup.key != computed) {
      computed = lookup.key;
      const void* src = static_cast<const char*>(values.values) + first * make.value_size();
      if (!make.gives_strings()) {
        any_none = make.Numbers(src, n, keys, none);
      } else if (make.passes_strings()) {
        strings = static_cast<const tensorflow::tstring*>(src);
        any_none = make.Strings(src, n, nullptr, none);
      } else {
        tensorflow::tstring* made = scratch->strings.Get(most);
        strings = made;
        any_none = make.Strings(src, n, made, none);
      }
    }
    scratch->lookups[l] = numbers;
    const EmbeddingTable& table = *lookup.table;
    bool all_there = false;
    if (make.gives_strings()) {
      table.FindRows(absl::MakeConstSpan(strings, n), numbers);
    } else if (table.index_kind() == IndexKind::kDirect && DirectRows(keys, n, table.rows(), numbers)) {
      all_there = true;
    } else {
      table.FindRows(absl::MakeConstSpan(keys, n), numbers);
    }
    if (any_none) {
      for (size_t i = 0; i < n; ++i) numbers[i] = none[i] ? kNoRow : numbers[i];
    }
    if (!all_there && table.absent_key() == AbsentKey::kError) {
      const uint32_t* refused = std::find(numbers, numbers + n, kRefusedRow);
      if (refused != numbers + n) return RefuseKey(lookup.key, first + (refused - numbers), table);
    }
    numbers += n;
  }
  return absl::OkStatus();
}

void Gather::WriteLookup(const Column& column, int64_t begin, int64_t end, GatherScratch* scratch,
                         RowFetcher* fetcher) const {
  const PlanColumn& planned = *column.plan;
  const PlanOutput& output = plan.outputs[planned.output];
  const KeyValues& key = request.keys[planned.key];
  const uint32_t empty_row = binding.lookups()[column.lookup].empty_row;
  const int64_t repeats = request.Repeats(output);
  const size_t width = output.width;
  const int64_t first = key.Begin(begin);
  uint32_t* numbers = scratch->lookups[column.lookup];
  float* dst = outputs[planned.output] + begin * repeats * width + planned.offset;

  // One value for each row of the output: pooling it changes nothing, unless there are weights.
  if (key.per_row == repeats && planned.weights < 0) {
    const size_t n = key.Begin(end) - first;
    if (empty_row != kNoRow) std::replace(numbers, numbers + n, kNoRow, empty_row);
    const size_t at_once = RowFetcher::RowsAtOnce(fetcher->run());
    for (size_t i = 0; i < n; i += at_once) {
      const size_t count = std::min(at_once, n - i);
      column.copy(column.source, numbers + i, count, dst + i * width, width);
      fetcher->Advance(count);
    }
    return;
  }

  if (planned.combiner == Combiner::kNone) {
    const size_t n = key.per_row;
    for (int64_t row = begin; row < end; ++row, numbers += n, dst += width) {
      column.copy(column.source, numbers, n, dst, column.source.dim);
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
    const float scale = ScaleOf(planned.combiner, numbers, weights, n, &counted);
    if (!counted) {
      column.copy(column.source, &empty_row, 1, dst, 0);
    } else if (scale == 0) {
      // As TensorFlow does where weights add up to nothing.
      column.copy(column.source, &kNoRow, 1, dst, 0);
    } else {
      column.pool(column.source, numbers, weights, n, scale, dst);
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
    const float* initial = output.initial.empty() ? nullptr : output.initial.data() + gap.offset;
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
  if (absl::Status found = FindRows(begin, end, scratch); !found.ok()) return found;
  scratch->runs.clear();
  for (const Column& column : binding.columns()) {
    if (column.plan->kind != ColumnKind::kLookup) continue;
    const KeyValues& key = request.keys[column.plan->key];
    scratch->runs.push_back({column.source, column.row_bytes, scratch->lookups[column.lookup],
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
      MultiplyByMatrix(view, begin, end, planned.matrix, planned.width, planned.accumulate, dst, width);
    }
  }
  return absl::OkStatus();
}

}  // namespace processor
