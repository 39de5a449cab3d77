// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/dot_interaction.h"

#include <algorithm>

#include "src/kernels/vector_loops.h"

namespace processor {
namespace {

// Rows of the matrix of products that are made at a time, so that each element of the transposed fields is read once
// for all of them.
constexpr int kFieldsAtOnce = 4;

/// Writes fields [fields, dim] as [dim, stride]; the columns from `fields` on stay as they are.
PROCESSOR_ALWAYS_INLINE void TransposeFields(const float* src, int64_t fields, int64_t dim, int64_t stride,
                                             float* dst) {
  int64_t field = 0;
  for (; field + kFieldsAtOnce <= fields; field += kFieldsAtOnce, src += kFieldsAtOnce * dim) {
    for (int64_t i = 0; i < dim; ++i) {
      for (int64_t j = 0; j < kFieldsAtOnce; ++j) dst[i * stride + field + j] = src[j * dim + i];
    }
  }
  for (; field < fields; ++field, src += dim) {
    for (int64_t i = 0; i < dim; ++i) dst[i * stride + field] = src[i];
  }
}

/// Makes kCount rows of the matrix of products, as many columns of them as a vector has lanes.
template <int kLanes, int kCount>
PROCESSOR_ALWAYS_INLINE void DotProducts(const float* rows, const float* columns, int64_t dim, int64_t stride,
                                         float* dst) {
  Vector<kLanes> sums[kCount] = {}, column;
  for (int64_t i = 0; i < dim; ++i) {
    Load<kLanes>(columns + i * stride, column);
    for (int r = 0; r < kCount; ++r) sums[r] += rows[r * dim + i] * column;
  }
  for (int r = 0; r < kCount; ++r) Store<kLanes>(sums[r], dst + r * stride);
}

PROCESSOR_ALWAYS_INLINE void PickPlaces(const float* src, const int32_t* places, int64_t size, float* dst) {
  for (int64_t i = 0; i < size; ++i) dst[i] = src[places[i]];
}

template <int kLanes>
PROCESSOR_ALWAYS_INLINE void DotRows(const float* src, int64_t rows, int64_t fields, int64_t dim, int64_t stride,
                                     const int32_t* places, int64_t size, float* scratch, float* dst) {
  // One zero, the matrix, the transposed fields.
  float* matrix = scratch + kMostLanes;
  float* columns = matrix + (fields + kFieldsAtOnce) * stride;
  std::fill(scratch, scratch + kMostLanes, 0.0f);
  std::fill(columns, columns + dim * stride, 0.0f);
  for (int64_t row = 0; row < rows; ++row, src += fields * dim, dst += size) {
    TransposeFields(src, fields, dim, stride, columns);
    int64_t field = 0;
    for (; field + kFieldsAtOnce <= fields; field += kFieldsAtOnce) {
      // The matrix is symmetric: its lower triangle is enough.
      for (int64_t j = 0; j < field + kFieldsAtOnce; j += kLanes) {
        DotProducts<kLanes, kFieldsAtOnce>(src + field * dim, columns + j, dim, stride, matrix + field * stride + j);
      }
    }
    for (; field < fields; ++field) {
      for (int64_t j = 0; j <= field; j += kLanes) {
        DotProducts<kLanes, 1>(src + field * dim, columns + j, dim, stride, matrix + field * stride + j);
      }
    }
    PickPlaces(scratch, places, size, dst);
  }
}

PROCESSOR_TARGET_AVX512 void DotRowsAvx512(const float* src, int64_t rows, int64_t fields, int64_t dim, int64_t stride,
                                           const int32_t* places, int64_t size, float* scratch, float* dst) {
  DotRows<kLanesAvx512>(src, rows, fields, dim, stride, places, size, scratch, dst);
}

PROCESSOR_TARGET_AVX2 void DotRowsAvx2(const float* src, int64_t rows, int64_t fields, int64_t dim, int64_t stride,
                                       const int32_t* places, int64_t size, float* scratch, float* dst) {
  DotRows<kLanesAvx2>(src, rows, fields, dim, stride, places, size, scratch, dst);
}

}  // namespace

DotPairs::DotPairs(absl::Span<const int64_t> pairs, int64_t fields)
    : fields_(fields), stride_((fields + kMostLanes - 1) / kMostLanes * kMostLanes) {
  places_.reserve(pairs.size());
  for (int64_t pair : pairs) {
    const int64_t i = std::max(pair / fields, pair % fields), j = std::min(pair / fields, pair % fields);
    places_.push_back(static_cast<int32_t>(pair < 0 ? 0 : kMostLanes + i * stride_ + j));
  }
}

size_t DotPairs::scratch(int64_t dim) const { return kMostLanes + (fields_ + kFieldsAtOnce + dim) * stride_; }

void DotPairs::Rows(const float* src, int64_t rows, int64_t dim, float* scratch, float* dst, Isa isa) const {
  const int32_t* places = places_.data();
  switch (isa) {
    case Isa::kAvx512:
      return DotRowsAvx512(src, rows, fields_, dim, stride_, places, size(), scratch, dst);
    case Isa::kAvx2:
      return DotRowsAvx2(src, rows, fields_, dim, stride_, places, size(), scratch, dst);
    case Isa::kPlain:
      return DotRows<kLanesPlain>(src, rows, fields_, dim, stride_, places, size(), scratch, dst);
  }
}

}  // namespace processor
