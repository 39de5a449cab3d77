// SPDX-License-Identifier: Apache-2.0
#include "src/tables/row_runs.h"

namespace processor {
namespace {

constexpr uint64_t kRunAlignment = 64;

uint64_t AlignedTo(uint64_t bytes, uint64_t unit) { return (bytes + unit - 1) / unit * unit; }

}  // namespace

uint32_t NarrowStride(RowType type, uint32_t dim) {
  const uint64_t size = RowBytes(type, dim);
  uint64_t lines = 1;
  while (size <= kRunAlignment && lines < size) lines *= 2;
  if (size > kRunAlignment) lines = AlignedTo(size, kRunAlignment);
  const uint64_t packed = AlignedTo(size, size >= 4 ? 4 : 2);
  return static_cast<uint32_t>(4 * lines <= 5 * size ? lines : packed);
}

RowRuns::RowRuns(const TableHeader& header) {
  const auto add = [&](uint64_t first, uint64_t end, uint32_t dim, uint32_t stride) {
    if (first == end) return;
    const uint64_t offset = AlignedTo(bytes_, kRunAlignment);
    const auto row_bytes = static_cast<uint32_t>(RowBytes(header.row_type, dim));
    runs_[size_++] = {static_cast<uint32_t>(first), static_cast<uint32_t>(end - first), dim, stride, row_bytes, offset};
    bytes_ = offset + (end - first) * stride;
  };
  if (header.num_narrow == 0) {
    add(0, header.rows + header.default_rows, header.dim, header.row_stride);
    return;
  }
  add(0, header.narrow[0].first, header.dim, header.row_stride);
  for (uint32_t i = 0; i < header.num_narrow; ++i) {
    const NarrowRows& narrow = header.narrow[i];
    const uint64_t end = i + 1 < header.num_narrow ? header.narrow[i + 1].first : header.rows;
    add(narrow.first, end, narrow.dim, NarrowStride(header.row_type, narrow.dim));
  }
  add(header.rows, header.rows + header.default_rows, header.dim, header.row_stride);
}

}  // namespace processor
