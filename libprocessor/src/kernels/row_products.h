// SPDX-License-Identifier: Apache-2.0
// Products of rows of several tables, element by element, a few at a time, so that they stay in the first-level cache.
#ifndef PROCESSOR_KERNELS_ROW_PRODUCTS_H_
#define PROCESSOR_KERNELS_ROW_PRODUCTS_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "src/kernels/embedding_binding.h"
#include "src/kernels/embedding_rows.h"
#include "src/kernels/row_fetcher.h"
#include "src/kernels/row_kernels.h"

namespace processor {

/// The products of one column, in memory that is kept for the next ones. One thread uses it.
class RowProducts {
 public:
  /// Values whose rows are multiplied at a time: the chunks into which values are divided.
  static size_t AtOnce(uint32_t dim) { return std::max<size_t>(1, kFloats / dim); }

  /// Writes the products of n values. The reader of `fetcher` is at the first of the column's runs for these values, and
  /// afterwards behind the last.
  /// \param dst  n rows of floats, `dst_stride` apart.
  static void Write(const EmbeddingBinding::Column& column, size_t n, float* dst, size_t dst_stride,
                    RowFetcher* fetcher) {
    Read(column.copy_first, n, dst, dst_stride, fetcher);
    for (const EmbeddingBinding::Factor& factor : column.factors) Read(factor.multiply, n, dst, dst_stride, fetcher);
  }

  /// Makes the products of n values, at most AtOnce(), and returns them as rows of a table.
  /// \param numbers  Of the column's own rows; the products of those that are kNoRow are not rows either.
  RowSource Make(const EmbeddingBinding::Column& column, const uint32_t* numbers, size_t n, RowFetcher* fetcher) {
    const uint32_t dim = column.source.dim;
    float* const products = products_.Get(AtOnce(dim) * dim);
    uint32_t* const places = places_.Get(AtOnce(dim));
    Write(column, n, products, dim, fetcher);
    for (size_t i = 0; i < n; ++i) places[i] = numbers[i] == kNoRow ? kNoRow : static_cast<uint32_t>(i);
    return {reinterpret_cast<const uint8_t*>(products), static_cast<uint32_t>(dim * sizeof(float)), dim};
  }

  /// Returns the numbers [n] of the rows that Make() made last.
  const uint32_t* numbers() { return places_.Get(0); }

  size_t bytes() const { return products_.bytes() + places_.bytes(); }

 private:
  static constexpr size_t kFloats = 4096;

  // Reads one run of n rows.
  static void Read(CopyRowsFn kernel, size_t n, float* dst, size_t dst_stride, RowFetcher* fetcher) {
    const RowFetcher::Run& run = fetcher->run();
    const size_t at_once = RowFetcher::RowsAtOnce(run);
    for (size_t i = 0; i < n; i += at_once) {
      const size_t count = std::min(at_once, n - i);
      kernel(run.source, run.numbers + i, count, dst + i * dst_stride, dst_stride);
      fetcher->Advance(count);
    }
    fetcher->NextRun();
  }

  GrowingArray<float> products_;
  GrowingArray<uint32_t> places_;
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_ROW_PRODUCTS_H_
