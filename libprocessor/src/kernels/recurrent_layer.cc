// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/recurrent_layer.h"

#include <algorithm>
#include <limits>

#include "src/kernels/panel_matmul.h"
#include "src/kernels/vector_loops.h"

namespace processor {

/// The loops between products, for one instruction set. `RecurrentLayer::Block` of the header points to it.
struct RecurrentLoops {
  void (*add_product)(int64_t, const float*, const float*, float*);
  void (*update)(int64_t, const float*, const float*, float*);
  void (*product)(int64_t, const float*, const float*, float*);
};

namespace {

/// A gate of some rows, and what is beside it.
struct Gates {
  float* data;     // [rows, gates, units]
  int64_t stride;  // from row to row
  int64_t units;
};

/// dst += a ∘ b.
PROCESSOR_ALWAYS_INLINE void AddProduct(int64_t size, const float* a, const float* b, float* dst) {
  for (int64_t i = 0; i < size; ++i) dst[i] += a[i] * b[i];
}

/// state = z ∘ state + (1 − z) ∘ candidate.
PROCESSOR_ALWAYS_INLINE void Update(int64_t size, const float* z, const float* candidate, float* state) {
  for (int64_t i = 0; i < size; ++i) state[i] = z[i] * state[i] + (1.0f - z[i]) * candidate[i];
}

/// dst = a ∘ b.
PROCESSOR_ALWAYS_INLINE void Product(int64_t size, const float* a, const float* b, float* dst) {
  for (int64_t i = 0; i < size; ++i) dst[i] = a[i] * b[i];
}

PROCESSOR_TARGET_AVX512 void AddProductAvx512(int64_t size, const float* a, const float* b, float* dst) {
  AddProduct(size, a, b, dst);
}
PROCESSOR_TARGET_AVX512 void UpdateAvx512(int64_t size, const float* a, const float* b, float* dst) {
  Update(size, a, b, dst);
}
PROCESSOR_TARGET_AVX512 void ProductAvx512(int64_t size, const float* a, const float* b, float* dst) {
  Product(size, a, b, dst);
}
PROCESSOR_TARGET_AVX2 void AddProductAvx2(int64_t size, const float* a, const float* b, float* dst) {
  AddProduct(size, a, b, dst);
}
PROCESSOR_TARGET_AVX2 void UpdateAvx2(int64_t size, const float* a, const float* b, float* dst) {
  Update(size, a, b, dst);
}
PROCESSOR_TARGET_AVX2 void ProductAvx2(int64_t size, const float* a, const float* b, float* dst) {
  Product(size, a, b, dst);
}

constexpr RecurrentLoops kLoops[] = {{AddProduct, Update, Product},
                                     {AddProductAvx2, UpdateAvx2, ProductAvx2},
                                     {AddProductAvx512, UpdateAvx512, ProductAvx512}};

const RecurrentLoops& LoopsFor(Isa isa) { return kLoops[static_cast<int>(isa)]; }

}  // namespace

RecurrentLayer::RecurrentLayer(const RecurrentWeights& weights)
    : cell_(weights.cell), inputs_(weights.inputs), units_(weights.units), gates_(RecurrentGates(weights.cell)) {
  const int64_t n = gates_ * units_, direct = cell_ == RecurrentCell::kLstm ? n : 2 * units_;
  Pack(weights.kernel, inputs_, 0, n, &input_);
  Pack(weights.recurrent, units_, 0, direct, &state_);
  if (weights.bias != nullptr) std::copy_n(weights.bias, n, input_.bias.begin());
  if (cell_ != RecurrentCell::kLstm) Pack(weights.recurrent, units_, direct, units_, &candidate_);
  if (weights.recurrent_bias != nullptr) {
    for (int64_t i = 0; i < direct; ++i) input_.bias[i] += weights.recurrent_bias[i];
    std::copy_n(weights.recurrent_bias + direct, units_, candidate_.bias.begin());
  }
}

void RecurrentLayer::Pack(const float* kernel, int64_t rows, int64_t first, int64_t columns, Packed* packed) const {
  std::vector<float> part(rows * columns);
  for (int64_t row = 0; row < rows; ++row) {
    std::copy_n(kernel + row * gates_ * units_ + first, columns, part.data() + row * columns);
  }
  packed->shape.k = rows;
  packed->shape.n = columns;
  packed->panels.resize(packed->shape.bytes());
  packed->bias.assign(columns, 0.0f);
  PackPanels(part.data(), false, packed->shape, packed->panels.data());
}

int64_t RecurrentLayer::steps(int64_t length) const {
  return std::clamp<int64_t>(kSums / (kBlock * gates_ * units_), 1, std::max<int64_t>(length, 1));
}

size_t RecurrentLayer::scratch(int64_t length) const {
  return kBlock * (steps(length) * gates_ * units_ + 3 * units_ + length);
}

/// Some rows, whose states are changed together.
class RecurrentLayer::Block {
 public:
  Block(const RecurrentLayer& layer, Isa isa, int64_t length, const RecurrentRule& rule, float* scratch,
        const std::function<bool()>& stopped)
      : layer_(layer),
        isa_(isa),
        math_(RowMathFor(isa)),
        loops_(LoopsFor(isa)),
        length_(length),
        rule_(rule),
        most_(layer.steps(length)),
        sums_(scratch),
        state_(sums_ + kBlock * most_ * layer.gates_ * layer.units_),
        memory_(state_ + kBlock * layer.units_),
        inner_(memory_ + kBlock * layer.units_),
        counts_(inner_ + kBlock * layer.units_),
        stopped_(stopped) {}

  void Rows(const float* x, const SequenceMask* mask, int64_t first, int64_t rows, float* states) {
    const int64_t units = layer_.units_, n = layer_.gates_ * units;
    rows_ = rows;
    std::fill(state_, inner_, 0.0f);
    for (int64_t row = 0; mask != nullptr && row < rows; ++row) mask->Row(first + row, counts_ + row * length_);
    for (int64_t begin = 0; begin < length_; begin += most_) {
      if (stopped_ && stopped_()) return;
      const int64_t steps = std::min(most_, length_ - begin);
      const int64_t place = rule_.backwards ? length_ - begin - steps : begin;
      for (int64_t row = 0; row < rows; ++row) {
        Multiply(layer_.input_, steps, x + (row * length_ + place) * layer_.inputs_, layer_.inputs_,
                 layer_.input_.bias.data(), sums_ + row * most_ * n, n);
      }
      for (int64_t step = 0; step < steps; ++step) {
        const int64_t at = rule_.backwards ? steps - 1 - step : step;
        if (Choose(mask != nullptr, place + at)) Step({sums_ + at * n, most_ * n, units});
        for (int64_t row = 0; rule_.sequences && row < rows; ++row) {
          std::copy_n(state_ + row * units, units, states + (row * length_ + begin + step) * units);
        }
      }
    }
    if (!rule_.sequences) std::copy_n(state_, rows * units, states);
  }

 private:
  /// Notes which rows a position counts for; false: for none.
  bool Choose(bool masked, int64_t position) {
    bool any = false;
    for (int64_t row = 0; row < rows_; ++row) {
      counts_now_[row] = !masked || counts_[row * length_ + position] != 0;
      any |= counts_now_[row];
    }
    return any;
  }

  void Step(const Gates& gates) {
    const int64_t units = gates.units;
    Multiply(layer_.state_, rows_, state_, units, nullptr, gates.data, gates.stride);
    if (layer_.cell_ == RecurrentCell::kLstm) {
      StepLstm(gates);
    } else {
      StepGru(gates);
    }
  }

  void StepGru(const Gates& gates) {
    const int64_t units = gates.units;
    const bool before = layer_.cell_ == RecurrentCell::kGruResetBefore;
    float *update = gates.data, *reset = gates.data + units, *candidate = gates.data + 2 * units;
    math_.activate({ActivationKind::kSigmoid}, rows_, 2 * units, {update, gates.stride});
    if (before) {
      for (int64_t row = 0; row < rows_; ++row) {
        loops_.product(units, reset + row * gates.stride, state_ + row * units, inner_ + row * units);
      }
      Multiply(layer_.candidate_, rows_, inner_, units, nullptr, candidate, gates.stride);
    } else {
      Multiply(layer_.candidate_, rows_, state_, units, layer_.candidate_.bias.data(), inner_, units);
      for (int64_t row = 0; row < rows_; ++row) {
        loops_.add_product(units, reset + row * gates.stride, inner_ + row * units, candidate + row * gates.stride);
      }
    }
    math_.activate({ActivationKind::kTanh}, rows_, units, {candidate, gates.stride});
    for (int64_t row = 0; row < rows_; ++row) {
      if (!counts_now_[row]) continue;
      loops_.update(units, update + row * gates.stride, candidate + row * gates.stride, state_ + row * units);
    }
  }

  void StepLstm(const Gates& gates) {
    const int64_t units = gates.units;
    float *input = gates.data, *forget = input + units, *candidate = forget + units, *output = candidate + units;
    math_.activate({ActivationKind::kSigmoid}, rows_, 2 * units, {input, gates.stride});
    math_.activate({ActivationKind::kTanh}, rows_, units, {candidate, gates.stride});
    math_.activate({ActivationKind::kSigmoid}, rows_, units, {output, gates.stride});
    for (int64_t row = 0; row < rows_; ++row) {
      const int64_t at = row * gates.stride;
      float* next = inner_ + row * units;
      loops_.product(units, forget + at, memory_ + row * units, next);
      loops_.add_product(units, input + at, candidate + at, next);
      if (counts_now_[row]) std::copy_n(next, units, memory_ + row * units);
    }
    math_.activate({ActivationKind::kTanh}, rows_, units, {inner_, units});
    for (int64_t row = 0; row < rows_; ++row) {
      if (!counts_now_[row]) continue;
      loops_.product(units, output + row * gates.stride, inner_ + row * units, state_ + row * units);
    }
  }

  /// dst = src · W + bias, or += without bias.
  void Multiply(const Packed& packed, int64_t rows, const float* src, int64_t src_stride, const float* bias, float* dst,
                int64_t dst_stride) const {
    PanelMatmul matmul;
    matmul.rows = rows;
    matmul.src = src;
    matmul.src_stride = src_stride;
    matmul.shape = packed.shape;
    matmul.panels = packed.panels.data();
    matmul.bias = bias;
    matmul.floor = -std::numeric_limits<float>::infinity();
    matmul.dst = dst;
    matmul.dst_stride = dst_stride;
    MultiplyPanels(isa_, matmul);
  }

  const RecurrentLayer& layer_;
  const Isa isa_;
  const RowMath& math_;
  const RecurrentLoops& loops_;
  const int64_t length_;
  const RecurrentRule rule_;
  const int64_t most_;  // steps whose sums are kept
  float* const sums_;
  float* const state_;
  float* const memory_;  // of an LSTM
  float* const inner_;
  float* const counts_;
  const std::function<bool()>& stopped_;
  int64_t rows_ = 0;
  bool counts_now_[kBlock];
};

void RecurrentLayer::Rows(const float* x, const SequenceMask* mask, int64_t begin, int64_t end, int64_t length,
                          const RecurrentRule& rule, float* scratch, float* states, Isa isa,
                          const std::function<bool()>& stopped) const {
  Block block(*this, isa, length, rule, scratch, stopped);
  const int64_t size = rule.sequences ? length * units_ : units_;
  for (int64_t row = begin; row < end; row += kBlock) {
    block.Rows(x + row * length * inputs_, mask, row, std::min(kBlock, end - row), states + row * size);
  }
}

}  // namespace processor
