// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/field_outer.h"

#include "src/kernels/vector_loops.h"

namespace processor {
namespace {

PROCESSOR_ALWAYS_INLINE void Outer(const float* one, int64_t fields, const float* other, int64_t others, int64_t dim,
                                   float* scratch, float* dst) {
  float *left = scratch, *right = scratch + fields;
  for (int64_t e = 0; e < dim; ++e) {
    for (int64_t i = 0; i < fields; ++i) left[i] = one[i * dim + e];
    for (int64_t j = 0; j < others; ++j) right[j] = other[j * dim + e];
    for (int64_t i = 0; i < fields; ++i, dst += others) {
      const float factor = left[i];
      for (int64_t j = 0; j < others; ++j) dst[j] = factor * right[j];
    }
  }
}

PROCESSOR_TARGET_AVX512 void OuterAvx512(const float* one, int64_t fields, const float* other, int64_t others,
                                         int64_t dim, float* scratch, float* dst) {
  Outer(one, fields, other, others, dim, scratch, dst);
}

PROCESSOR_TARGET_AVX2 void OuterAvx2(const float* one, int64_t fields, const float* other, int64_t others, int64_t dim,
                                     float* scratch, float* dst) {
  Outer(one, fields, other, others, dim, scratch, dst);
}

}  // namespace

void FieldOuter(const float* one, int64_t fields, const float* other, int64_t others, int64_t dim, float* scratch,
                float* dst, Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
      return OuterAvx512(one, fields, other, others, dim, scratch, dst);
    case Isa::kAvx2:
      return OuterAvx2(one, fields, other, others, dim, scratch, dst);
    case Isa::kPlain:
      return Outer(one, fields, other, others, dim, scratch, dst);
  }
}

}  // namespace processor
