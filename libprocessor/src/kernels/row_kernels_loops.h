// SPDX-License-Identifier: Apache-2.0
// The loops of row_kernels.h, written once for vectors of any width. Each file that includes this header is compiled for
// another instruction set, so everything here has internal linkage.
#ifndef PROCESSOR_KERNELS_ROW_KERNELS_LOOPS_H_
#define PROCESSOR_KERNELS_ROW_KERNELS_LOOPS_H_

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "src/kernels/row_kernels.h"

namespace processor {
namespace {

constexpr int kFloat32 = 0, kBfloat16 = 1, kFloat16 = 2, kInt8 = 3, kInt4 = 4;

inline float FloatFromBits(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

inline float FloatFromHalf(uint16_t half) {
  const uint32_t sign = (half & 0x8000u) << 16;
  const uint32_t rest = half & 0x7fffu;
  if (rest >= 0x7c00u) {
    // Infinity or NaN; a NaN becomes quiet, as by the CPU's conversion.
    const uint32_t quiet = rest > 0x7c00u ? 0x00400000u : 0;
    return FloatFromBits(sign | 0x7f800000u | (rest & 0x3ffu) << 13 | quiet);
  }
  if (rest >= 0x0400u) return FloatFromBits(sign | ((rest << 13) + 0x38000000u));
  // Below the smallest normal half: a multiple of 2^-24.
  const float value = static_cast<float>(rest) * 5.9604644775390625e-8f;
  return sign == 0 ? value : -value;
}

inline uint16_t Load16(const uint8_t* bytes) {
  uint16_t value;
  std::memcpy(&value, bytes, sizeof(value));
  return value;
}

// Reads one element. `scale` and `bias` belong to the row, for types that have them.
template <int kType>
inline float Element(const uint8_t* row, size_t e, float scale, float bias) {
  if constexpr (kType == kFloat32) {
    float value;
    std::memcpy(&value, row + 4 * e, sizeof(value));
    return value;
  } else if constexpr (kType == kBfloat16) {
    return FloatFromBits(uint32_t{Load16(row + 2 * e)} << 16);
  } else if constexpr (kType == kFloat16) {
    return FloatFromHalf(Load16(row + 2 * e));
  } else if constexpr (kType == kInt8) {
    const float product = scale * static_cast<float>(row[4 + e]);
    return product + bias;
  } else {
    const float product = scale * static_cast<float>(row[4 + e / 2] >> (e % 2 * 4) & 0xf);
    return product + bias;
  }
}

// What an instruction set provides (`Isa`): Vector, kWidth, Tail (which of the last elements there are),
// MakeTail(elements), Zero, Set(x), Add, Multiply, Half(bits), Load<type>(row, e, scale, bias) of kWidth elements from
// e on, LoadTail<type>(..., tail), Read(src), ReadTail, Write(dst, v), WriteTail(dst, v, tail). kWidth is even.

template <class Isa, int kType>
struct Row {
  explicit Row(const uint8_t* bytes) : bytes_(bytes) {
    if constexpr (kType == kInt8 || kType == kInt4) {
      scale_ = Isa::Set(Isa::Half(Load16(bytes)));
      bias_ = Isa::Set(Isa::Half(Load16(bytes + 2)));
    }
  }
  typename Isa::Vector Load(size_t e) const { return Isa::template Load<kType>(bytes_, e, scale_, bias_); }
  typename Isa::Vector LoadTail(size_t e, typename Isa::Tail tail) const {
    return Isa::template LoadTail<kType>(bytes_, e, scale_, bias_, tail);
  }

  const uint8_t* bytes_;
  typename Isa::Vector scale_ = Isa::Zero(), bias_ = Isa::Zero();
};

// What becomes of the elements of rows: they are written, or added to what is there, or multiplied with it.
enum class Put { kWrite, kAdd, kMultiply };

template <class Isa, Put kPut, class Read>
inline typename Isa::Vector Combined(typename Isa::Vector value, [[maybe_unused]] Read before) {
  if constexpr (kPut == Put::kAdd) return Isa::Add(before(), value);
  if constexpr (kPut == Put::kMultiply) return Isa::Multiply(before(), value);
  return value;
}

// Puts a row of zeros; a product of NaN or an infinity with it is NaN.
template <Put kPut>
inline void PutZeros(float* dst, size_t dim) {
  if constexpr (kPut == Put::kWrite) std::memset(dst, 0, sizeof(float) * dim);
  if constexpr (kPut == Put::kMultiply) {
    for (size_t e = 0; e < dim; ++e) dst[e] *= 0.0f;
  }
}

// A row whose vectors are full except for the last one; kFull < 0: their number is known only at run time.
template <class Isa, int kType, Put kPut, int kFull>
void CopyVectors(const RowSource& source, const uint32_t* numbers, size_t n, float* dst, size_t dst_stride) {
  constexpr size_t kWidth = Isa::kWidth;
  const size_t full = kFull >= 0 ? static_cast<size_t>(kFull) : (source.dim - 1) / kWidth;
  const typename Isa::Tail tail = Isa::MakeTail(source.dim - full * kWidth);
  for (size_t i = 0; i < n; ++i, dst += dst_stride) {
    const uint32_t number = numbers[i];
    if (__builtin_expect(number >= kFirstSpecialRow, 0)) {
      PutZeros<kPut>(dst, source.dim);
      continue;
    }
    const Row<Isa, kType> row(source.rows + size_t{number} * source.stride);
    size_t e = 0;
    for (size_t v = 0; v < full; ++v, e += kWidth) {
      Isa::Write(dst + e, Combined<Isa, kPut>(row.Load(e), [&] { return Isa::Read(dst + e); }));
    }
    const auto last = Combined<Isa, kPut>(row.LoadTail(e, tail), [&] { return Isa::ReadTail(dst + e, tail); });
    Isa::WriteTail(dst + e, last, tail);
  }
}

// Rows of one element, as in the wide part of a model, where many of them are added to one number.
template <class Isa, int kType, Put kPut>
void CopyElements(const RowSource& source, const uint32_t* numbers, size_t n, float* dst, size_t dst_stride) {
  for (size_t i = 0; i < n; ++i, dst += dst_stride) {
    const uint32_t number = numbers[i];
    if (__builtin_expect(number >= kFirstSpecialRow, 0)) {
      PutZeros<kPut>(dst, 1);
      continue;
    }
    const uint8_t* row = source.rows + size_t{number} * source.stride;
    float scale = 0, bias = 0;
    if constexpr (kType == kInt8 || kType == kInt4) {
      scale = Isa::Half(Load16(row));
      bias = Isa::Half(Load16(row + 2));
    }
    const float value = Element<kType>(row, 0, scale, bias);
    *dst = kPut == Put::kAdd ? *dst + value : kPut == Put::kMultiply ? *dst * value : value;
  }
}

template <class Isa, int kType, Put kPut>
void CopyRows(const RowSource& source, const uint32_t* numbers, size_t n, float* dst, size_t dst_stride) {
  if (source.dim == 1) return CopyElements<Isa, kType, kPut>(source, numbers, n, dst, dst_stride);
  switch ((source.dim - 1) / Isa::kWidth) {
    case 0:
      return CopyVectors<Isa, kType, kPut, 0>(source, numbers, n, dst, dst_stride);
    case 1:
      return CopyVectors<Isa, kType, kPut, 1>(source, numbers, n, dst, dst_stride);
    case 3:
      return CopyVectors<Isa, kType, kPut, 3>(source, numbers, n, dst, dst_stride);
    default:
      return CopyVectors<Isa, kType, kPut, -1>(source, numbers, n, dst, dst_stride);
  }
}

// Sums kVectors vectors of each row from element e on, the last of them with `tail`.
template <class Isa, int kType, bool kAdd, int kVectors>
void PoolVectors(const RowSource& source, const uint32_t* numbers, const float* factors, size_t n, float scale,
                 size_t e, typename Isa::Tail tail, float* dst) {
  constexpr size_t kWidth = Isa::kWidth;
  constexpr int kLast = kVectors - 1;
  typename Isa::Vector sums[kVectors];
  for (auto& sum : sums) sum = Isa::Zero();
  for (size_t i = 0; i < n; ++i) {
    const uint32_t number = numbers[i];
    if (__builtin_expect(number >= kFirstSpecialRow, 0)) continue;
    const Row<Isa, kType> row(source.rows + size_t{number} * source.stride);
    typename Isa::Vector values[kVectors];
    for (int v = 0; v < kLast; ++v) values[v] = row.Load(e + v * kWidth);
    values[kLast] = row.LoadTail(e + kLast * kWidth, tail);
    if (factors != nullptr) {
      const auto factor = Isa::Set(factors[i]);
      for (auto& value : values) value = Isa::Multiply(value, factor);
    }
    for (int v = 0; v < kVectors; ++v) sums[v] = Isa::Add(sums[v], values[v]);
  }
  const auto scales = Isa::Set(scale);
  for (int v = 0; v < kVectors; ++v) {
    float* to = dst + e + v * kWidth;
    const auto scaled = Isa::Multiply(sums[v], scales);
    if (v < kLast) {
      Isa::Write(to, kAdd ? Isa::Add(Isa::Read(to), scaled) : scaled);
    } else {
      Isa::WriteTail(to, kAdd ? Isa::Add(Isa::ReadTail(to, tail), scaled) : scaled, tail);
    }
  }
}

template <class Isa, int kType, bool kAdd>
void PoolRows(const RowSource& source, const uint32_t* numbers, const float* factors, size_t n, float scale,
              float* dst) {
  // Four vectors at a time stay in registers; the rows of wider ones come from the cache the second time.
  constexpr size_t kWidth = Isa::kWidth;
  const typename Isa::Tail whole = Isa::MakeTail(kWidth);
  size_t e = 0;
  for (; source.dim - e > 4 * kWidth; e += 4 * kWidth) {
    PoolVectors<Isa, kType, kAdd, 4>(source, numbers, factors, n, scale, e, whole, dst);
  }
  const size_t last = (source.dim - e - 1) / kWidth;
  const typename Isa::Tail tail = Isa::MakeTail(source.dim - e - last * kWidth);
  switch (last) {
    case 0:
      return PoolVectors<Isa, kType, kAdd, 1>(source, numbers, factors, n, scale, e, tail, dst);
    case 1:
      return PoolVectors<Isa, kType, kAdd, 2>(source, numbers, factors, n, scale, e, tail, dst);
    case 2:
      return PoolVectors<Isa, kType, kAdd, 3>(source, numbers, factors, n, scale, e, tail, dst);
    default:
      return PoolVectors<Isa, kType, kAdd, 4>(source, numbers, factors, n, scale, e, tail, dst);
  }
}

template <class Isa, int kType>
constexpr void FillType(RowKernels* kernels) {
  kernels->copy[kType] = CopyRows<Isa, kType, Put::kWrite>;
  kernels->add[kType] = CopyRows<Isa, kType, Put::kAdd>;
  kernels->multiply[kType] = CopyRows<Isa, kType, Put::kMultiply>;
  kernels->pool[kType] = PoolRows<Isa, kType, false>;
  kernels->add_pooled[kType] = PoolRows<Isa, kType, true>;
}

template <class Isa>
constexpr RowKernels MakeRowKernels() {
  RowKernels kernels{};
  FillType<Isa, kFloat32>(&kernels);
  FillType<Isa, kBfloat16>(&kernels);
  FillType<Isa, kFloat16>(&kernels);
  FillType<Isa, kInt8>(&kernels);
  FillType<Isa, kInt4>(&kernels);
  return kernels;
}

}  // namespace
}  // namespace processor

#endif  // PROCESSOR_KERNELS_ROW_KERNELS_LOOPS_H_
