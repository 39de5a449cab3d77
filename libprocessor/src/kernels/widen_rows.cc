// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/widen_rows.h"

#include <algorithm>
#include <cstring>
#include <vector>

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

// Writes copies of rows at full width.
class Widener {
 public:
  Widener(const EmbeddingTable& table, const RowKernels& kernels)
      : type_(table.row_type()),
        quantized_(IsQuantized(type_)),
        copy_(kernels.copy[static_cast<int>(type_)]),
        whole_(RowBytes(CopiedRowType(table), table.dim())) {}

  // `dst` may be the row itself, unless it is quantized; otherwise they must not overlap.
  void Write(FoundRow row, uint8_t* dst) const {
    constexpr uint32_t kFirst = 0;
    size_t bytes = RowBytes(type_, row.dim);
    if (quantized_) {
      bytes = sizeof(float) * row.dim;
      copy_({row.bytes, 0, row.dim}, &kFirst, 1, reinterpret_cast<float*>(dst), 0);
    } else if (row.bytes != dst) {
      std::memcpy(dst, row.bytes, bytes);
    }
    std::memset(dst + bytes, 0, whole_ - bytes);
  }

 private:
  const RowType type_;
  const bool quantized_;
  const CopyRowsFn copy_;
  const size_t whole_;
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
  const Widener widener(table, kernels);
  const size_t stride = CopiedRowStride(table);
  for (size_t i = 0; i < std::min(kCopiesAhead, numbers.size()); ++i) rows.Fetch(numbers[i]);
  for (size_t i = 0; i < numbers.size(); ++i, dst += stride) {
    if (i + kCopiesAhead < numbers.size()) rows.Fetch(numbers[i + kCopiesAhead]);
    if (numbers[i] < kFirstSpecialRow) widener.Write(rows.Of(numbers[i]), dst);
  }
}

void WidenFetchedRows(const EmbeddingTable& table, const uint8_t* changed, absl::Span<const uint32_t> numbers,
                      uint8_t* dst, std::vector<uint8_t>* codes, const RowKernels& kernels) {
  const Widener widener(table, kernels);
  const bool quantized = IsQuantized(table.row_type());
  const size_t stride = CopiedRowStride(table);
  if (quantized) codes->resize(std::max<size_t>(codes->size(), RowBytes(table.row_type(), table.dim())));
  for (size_t i = 0; i < numbers.size(); ++i, dst += stride) {
    if (numbers[i] >= kFirstSpecialRow) continue;
    if (numbers[i] >= table.rows() + table.default_rows()) {
      widener.Write({changed + size_t{numbers[i]} * table.row_stride(), table.dim()}, dst);
      continue;
    }
    const RowRun& run = table.runs().Of(numbers[i]);
    if (quantized) std::memcpy(codes->data(), dst, run.bytes);
    widener.Write({quantized ? codes->data() : dst, run.dim}, dst);
  }
}

}  // namespace processor
