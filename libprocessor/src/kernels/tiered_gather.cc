// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/tiered_gather.h"

#include <algorithm>
#include <cstring>

#include "src/kernels/row_kernels.h"
#include "src/kernels/widen_rows.h"

namespace processor {
namespace {

// The largest element of a row, so that the arena of each lookup begins where one may lie.
constexpr size_t kArenaAlignment = 64;

size_t ArenaBytes(size_t rows, uint32_t stride) {
  return (rows * stride + kArenaAlignment - 1) / kArenaAlignment * kArenaAlignment;
}

// Copies the rows that deltas have changed, whose numbers are above those of the file.
void CopyChanged(const EmbeddingTable& table, const uint8_t* changed, absl::Span<const uint32_t> numbers,
                 uint8_t* dst) {
  const size_t stride = table.row_stride();
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (numbers[i] < table.tiered()->num_rows() || numbers[i] >= kFirstSpecialRow) continue;
    std::memcpy(dst + i * stride, changed + numbers[i] * stride, stride);
  }
}

}  // namespace

int64_t TieredGather::RowsOfBlock(const EmbeddingBinding& binding, const EmbeddingRequest& request) {
  size_t bytes = 0;
  for (const EmbeddingBinding::Lookup& lookup : binding.lookups()) {
    if (lookup.table->tiered() == nullptr) continue;
    bytes += static_cast<size_t>(request.keys[lookup.key].count) * CopiedRowStride(*lookup.table);
  }
  const size_t of_row = bytes / static_cast<size_t>(std::max<int64_t>(request.batch, 1));
  return std::max<int64_t>(1, static_cast<int64_t>(kBlockBytes / std::max<size_t>(of_row, 1)));
}

absl::Status TieredGather::Fetch(const EmbeddingBinding& binding, const EmbeddingRequest& request, int64_t begin,
                                 int64_t end, EmbeddingRows* rows) {
  const absl::Span<const EmbeddingBinding::Lookup> lookups = binding.lookups();
  const auto values = [&](const EmbeddingBinding::Lookup& lookup) {
    const KeyValues& key = request.keys[lookup.key];
    return static_cast<size_t>(key.Begin(end) - key.Begin(begin));
  };
  size_t bytes = 0;
  for (const EmbeddingBinding::Lookup& lookup : lookups) {
    if (lookup.table->copies_rows()) bytes += ArenaBytes(values(lookup) + 1, CopiedRowStride(*lookup.table));
  }
  uint8_t* arena = memory_.Get(bytes);
  rows_.assign(lookups.size(), nullptr);
  empty_rows_ = request.empty_rows;
  fetched_.clear();
  fetched_numbers_.clear();
  for (size_t l = 0; l < lookups.size(); ++l) {
    const EmbeddingTable& table = *lookups[l].table;
    if (!table.copies_rows()) continue;
    TieredRows* const file = table.tiered();
    const uint32_t stride = CopiedRowStride(table);
    const uint8_t* const changed =
        lookups[l].live < 0 ? nullptr : request.view->table(lookups[l].live).overlay().rows();
    const size_t n = values(lookups[l]);
    uint32_t* const numbers = rows->of(static_cast<int>(l));
    const auto bring = [&](uint32_t* wanted, size_t count, size_t first) {
      uint8_t* const dst = arena + first * stride;
      const absl::Span<const uint32_t> of_rows(wanted, count);
      if (file == nullptr) {
        WidenRows(table, changed, of_rows, dst);
      } else {
        fetch_.Add(file, of_rows, stride, dst);
        if (table.has_narrow_rows()) {
          fetched_.push_back({&table, changed, fetched_numbers_.size(), count, dst});
          fetched_numbers_.insert(fetched_numbers_.end(), of_rows.begin(), of_rows.end());
        } else if (changed != nullptr) {
          CopyChanged(table, changed, of_rows, dst);
        }
      }
      for (size_t i = 0; i < count; ++i) {
        if (wanted[i] < kFirstSpecialRow) wanted[i] = static_cast<uint32_t>(first + i);
      }
    };
    bring(numbers, n, 0);
    if (empty_rows_[l] < kFirstSpecialRow) bring(&empty_rows_[l], 1, n);
    rows_[l] = arena;
    arena += ArenaBytes(n + 1, stride);
  }
  if (absl::Status s = fetch_.Finish(request.early); !s.ok()) return s;
  for (const Fetched& rows_of : fetched_) {
    WidenFetchedRows(*rows_of.table, rows_of.changed,
                     absl::MakeConstSpan(fetched_numbers_).subspan(rows_of.first, rows_of.count), rows_of.dst, &codes_);
  }
  return absl::OkStatus();
}

}  // namespace processor
