// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/widen_rows.h"

#include <algorithm>
#include <cstring>

namespace processor {
namespace {

// Rows whose memory is on the way while others are copied.
constexpr size_t kCopiesAhead = 16;
constexpr uint32_t kFetchedLine = 64;

bool IsQuantized(RowType type) { return type == RowType::kInt8 || type == RowType::kInt4; }

// Where a row is, and how many elements it has.
struct FoundRow {
  const uint8_t* bytes;
  uint32_t dim;
};

class RunRows {
 public:
  RunRows(const EmbeddingTable& table, const uint8_t* changed)
      : table_(table), file_(table.row(0)), changed_(changed), file_rows_(table.rows() + table.default_rows()) {}

  FoundRow Of(uint32_t number) const {
    if (number >= file_rows_) return {changed_ + size_t{number} * table_.row_stride(), table_.dim()};
    const RowRun& run = table_.runs().Of(number);
    return {file_ + run.offset + uint64_t{number - run.first} * run.stride, run.dim};
  }

  void Fetch(uint32_t number) const {
    if (number >= kFirstSpecialRow) return;
    const FoundRow row = Of(number);
    const uint64_t bytes = RowBytes(table_.row_type(), row.dim);
    for (uint64_t offset = 0; offset < bytes; offset += kFetchedLine) __builtin_prefetch(row.bytes + offset);
    __builtin_prefetch(row.bytes + bytes - 1);
  }

 private:
  const EmbeddingTable& table_;
  const uint8_t* const file_;
  const uint8_t* const changed_;
  const uint64_t file_rows_;
};

}  // namespace

RowType CopiedRowType(const EmbeddingTable& table) {
  return table.has_narrow_rows() && IsQuantized(table.row_type()) ? RowType::kFloat32 : table.row_type();
}

uint32_t CopiedRowStride(const EmbeddingTable& table) {
  const RowType type = CopiedRowType(table);
  return type == table.row_type() ? table.row_stride() : static_cast<uint32_t>(RowBytes(type, table.dim()));
}

void WidenRows(const EmbeddingTable& table, const uint8_t* changed, absl::Span<const uint32_t> numbers, uint8_t* dst,
               const RowKernels& kernels) {
  const RunRows rows(table, changed);
  const RowType type = table.row_type();
  const bool quantized = IsQuantized(type);
  const CopyRowsFn copy = kernels.copy[static_cast<int>(type)];
  const size_t stride = CopiedRowStride(table), whole = RowBytes(CopiedRowType(table), table.dim());
  constexpr uint32_t kFirst = 0;
  for (size_t i = 0; i < std::min(kCopiesAhead, numbers.size()); ++i) rows.Fetch(numbers[i]);
  for (size_t i = 0; i < numbers.size(); ++i, dst += stride) {
    if (i + kCopiesAhead < numbers.size()) rows.Fetch(numbers[i + kCopiesAhead]);
    if (numbers[i] >= kFirstSpecialRow) continue;
    const FoundRow row = rows.Of(numbers[i]);
    size_t bytes = RowBytes(type, row.dim);
    if (quantized) {
      bytes = sizeof(float) * row.dim;
      copy({row.bytes, 0, row.dim}, &kFirst, 1, reinterpret_cast<float*>(dst), 0);
    } else {
      std::memcpy(dst, row.bytes, bytes);
    }
    std::memset(dst + bytes, 0, whole - bytes);
  }
}

}  // namespace processor
