// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/row_kernels.h"

#include "src/kernels/row_kernels_loops.h"

namespace processor {

// Of the files that are compiled for them.
extern const RowKernels* const kAvx2RowKernels;
extern const RowKernels* const kAvx512RowKernels;

namespace {

// One element at a time, for any x86-64.
struct Plain {
  using Vector = float;
  struct Tail {};
  static constexpr size_t kWidth = 1;

  static Tail MakeTail(size_t) { return {}; }
  static float Zero() { return 0; }
  static float Set(float value) { return value; }
  static float Add(float a, float b) { return a + b; }
  static float Multiply(float a, float b) { return a * b; }
  static float Half(uint16_t bits) { return FloatFromHalf(bits); }
  static float Read(const float* src) { return *src; }
  static float ReadTail(const float* src, Tail) { return *src; }
  static void Write(float* dst, float value) { *dst = value; }
  static void WriteTail(float* dst, float value, Tail) { *dst = value; }

  template <int kType>
  static float Load(const uint8_t* row, size_t e, float scale, float bias) {
    return Element<kType>(row, e, scale, bias);
  }
  template <int kType>
  static float LoadTail(const uint8_t* row, size_t e, float scale, float bias, Tail) {
    return Element<kType>(row, e, scale, bias);
  }
};

constexpr RowKernels kPlainRowKernels = MakeRowKernels<Plain>();

}  // namespace

const RowKernels& RowKernelsFor(Isa isa) {
  switch (isa) {
    case Isa::kAvx512:
      return *kAvx512RowKernels;
    case Isa::kAvx2:
      return *kAvx2RowKernels;
    case Isa::kPlain:
      break;
  }
  return kPlainRowKernels;
}

const RowKernels& BestRowKernels() {
  static const RowKernels& best = RowKernelsFor(ThisCpu().isa);
  return best;
}

}  // namespace processor
