// SPDX-License-Identifier: Apache-2.0
// The kernels of update_kernels.h in vectors. The header is compiled once for each instruction
// set, so all of it is in an unnamed namespace.
//
// Sparse group lasso is Algorithm 1 of "Adaptive Optimizers with Sparse Group Lasso" (Yue et al., ECML PKDD 2021) with
// another quantity in memory. The paper keeps z, from z₀ = V₀ = 0, and per element
//   z_t = z_{t−1} + m_t − (√V_t / α_t − √V_{t−1} / α_{t−1}) · x_t,
// which needs the last √V / α. We keep the residual p_t = z_t + √V_t / α_t · x_{t+1}, so that with D = √V_t / α_t
//   z       = p_{t−1} + m_t − D · x_t
//   s       = clip(z, −λ1, λ1) − z
//   x_{t+1} = max(0, 1 − √dim · λ21 / ‖s‖) · s / (D + 2 · λ2)
//   p_t     = z + D · x_{t+1}.
// Both have the same x_t, for any schedule of α. p is what regularization holds back: without it p stays 0 and the step is
// that of the optimizer itself, so nothing large cancels.
#ifndef ELASTIC_TRAINING_OPTIMIZERS_UPDATE_KERNELS_LOOPS_H_
#define ELASTIC_TRAINING_OPTIMIZERS_UPDATE_KERNELS_LOOPS_H_

#include <cmath>
#include <cstring>

#include "src/optimizers/float_vectors.h"
#include "src/optimizers/update_kernels.h"

namespace elastic_training {
namespace {

// A float counts up to here exactly. Adam's corrections have long been 1 by then.
constexpr float kMostUpdates = 16777216.0f;

ELASTIC_INLINE bool AllZero(const float* x, size_t n) {
  for (size_t i = 0; i < n; ++i) {
    if (x[i] != 0.0f) return false;
  }
  return true;
}

// Adds the mean square of the gradient to an accumulator and returns it.
ELASTIC_INLINE float AddMeanSquare(const float* gradient, size_t n, float* accumulator) {
  LaneSum squares;
  ForBlocks(n, [&](auto width, size_t at) ELASTIC_LAMBDA {
    const auto g = Load(width, gradient + at);
    squares.Add(width, at, g * g);
  });
  *accumulator += squares.Total() / static_cast<float>(n);
  return *accumulator;
}

// Counts an update of the row.
ELASTIC_INLINE AdamCorrection NextCorrection(const UpdateConstants& c, float* updates) {
  if (*updates < kMostUpdates) *updates += 1.0f;
  const size_t count = static_cast<size_t>(*updates);
  if (count - 1 < c.num_corrections) return c.corrections[count - 1];
  return CorrectionAfter(c, static_cast<uint32_t>(count));
}

// Each optimizer below updates a row: weights x [n] and slots after them.

struct Sgd {
  static constexpr bool kLasso = false;

  static ELASTIC_INLINE void Step(float rate, const float* gradient, size_t n, float* row) {
    ForBlocks(n, [&](auto width, size_t at)
                     ELASTIC_LAMBDA { Store(row + at, Load(width, row + at) - rate * Load(width, gradient + at)); });
  }
  static ELASTIC_INLINE void Update(const UpdateConstants&, float rate, const float* gradient, size_t n, float* row) {
    Step(rate, gradient, n, row);
  }
};

struct Adagrad {
  static constexpr bool kLasso = false;

  static ELASTIC_INLINE void Update(const UpdateConstants& c, float rate, const float* gradient, size_t n, float* row) {
    const float epsilon = c.epsilon;
    ForBlocks(n, [&](auto width, size_t at) ELASTIC_LAMBDA {
      const auto g = Load(width, gradient + at);
      const auto a = Load(width, row + n + at) + g * g;
      Store(row + n + at, a);
      Store(row + at, Load(width, row + at) - (rate * g) / SquareRoot(a + epsilon));
    });
  }
};

struct RowwiseAdagrad {
  static constexpr bool kLasso = false;

  static ELASTIC_INLINE void Update(const UpdateConstants& c, float rate, const float* gradient, size_t n, float* row) {
    Sgd::Step(rate / std::sqrt(AddMeanSquare(gradient, n, row + n) + c.epsilon), gradient, n, row);
  }
};

struct Adam {
  static constexpr bool kLasso = false;

  static ELASTIC_INLINE void Update(const UpdateConstants& c, float rate, const float* gradient, size_t n, float* row) {
    const float alpha = rate * NextCorrection(c, row + 3 * n).step;
    const float rest_1 = 1.0f - c.beta_1, rest_2 = 1.0f - c.beta_2, epsilon = c.epsilon;
    ForBlocks(n, [&](auto width, size_t at) ELASTIC_LAMBDA {
      const auto g = Load(width, gradient + at);
      auto m = Load(width, row + n + at), v = Load(width, row + 2 * n + at);
      m = m + (g - m) * rest_1;
      v = v + (g * g - v) * rest_2;
      Store(row + n + at, m);
      Store(row + 2 * n + at, v);
      Store(row + at, Load(width, row + at) - (m * alpha) / (SquareRoot(v) + epsilon));
    });
  }
};

// Returns clip(z, −l1, l1) − z.
template <typename Width>
ELASTIC_INLINE typename Width::Vector ShrunkByL1(Width width, typename Width::Vector z, float l1) {
  const auto low = Splat(width, -l1), high = Splat(width, l1);
  const auto above = z < low ? low : z;
  return (above > high ? high : above) - z;
}

// Returns max(0, 1 − √n · λ21 / ‖s‖), 0 for s = 0, of the squares of s.
ELASTIC_INLINE float GroupFactor(float l21, size_t n, const LaneSum& squares) {
  const float norm = std::sqrt(squares.Total());
  const float threshold = std::sqrt(static_cast<float>(n)) * l21;
  return norm > threshold ? 1.0f - threshold / norm : 0.0f;
}

// Completes a step with lasso. moments(width, at, m, d) updates the slots of the optimizer itself for the block that begins
// at `at`, and tells m and D. Between the passes the weights hold D: x_t is not needed once z is known.
template <typename Moments>
ELASTIC_INLINE bool LassoStep(const UpdateConstants& c, size_t n, float* weights, float* residual,
                              const Moments& moments) {
  const float l1 = c.l1, two_l2 = 2.0f * c.l2;
  LaneSum squares;
  ForBlocks(n, [&](auto width, size_t at) ELASTIC_LAMBDA {
    typename decltype(width)::Vector m, d;
    moments(width, at, m, d);
    const auto z = (Load(width, residual + at) + m) - d * Load(width, weights + at);
    const auto s = ShrunkByL1(width, z, l1);
    squares.Add(width, at, s * s);
    Store(residual + at, z);
    Store(weights + at, d);
  });
  const float factor = GroupFactor(c.l21, n, squares);
  if (!(factor > 0.0f)) {
    std::memset(weights, 0, n * sizeof(float));
    return true;
  }
  ForBlocks(n, [&](auto width, size_t at) ELASTIC_LAMBDA {
    const auto z = Load(width, residual + at), d = Load(width, weights + at);
    const auto x = (factor * ShrunkByL1(width, z, l1)) / (d + two_l2);
    Store(weights + at, x);
    Store(residual + at, z + d * x);
  });
  return false;
}

struct GroupSgd {
  static constexpr bool kLasso = true;
  using Plain = Sgd;

  static ELASTIC_INLINE bool Update(const UpdateConstants& c, float rate, const float* gradient, size_t n, float* row) {
    const float inverse = 1.0f / rate;
    return LassoStep(c, n, row, row + n, [&](auto width, size_t at, auto& m, auto& d) ELASTIC_LAMBDA {
      m = Load(width, gradient + at);
      d = Splat(width, inverse);
    });
  }
};

struct GroupAdagrad {
  static constexpr bool kLasso = true;
  using Plain = Adagrad;

  static ELASTIC_INLINE bool Update(const UpdateConstants& c, float rate, const float* gradient, size_t n, float* row) {
    const float inverse = 1.0f / rate, epsilon = c.epsilon;
    return LassoStep(c, n, row, row + 2 * n, [&](auto width, size_t at, auto& m, auto& d) ELASTIC_LAMBDA {
      m = Load(width, gradient + at);
      const auto a = Load(width, row + n + at) + m * m;
      Store(row + n + at, a);
      d = SquareRoot(a + epsilon) * inverse;
    });
  }
};

struct GroupRowwiseAdagrad {
  static constexpr bool kLasso = true;
  using Plain = RowwiseAdagrad;

  static ELASTIC_INLINE bool Update(const UpdateConstants& c, float rate, const float* gradient, size_t n, float* row) {
    const float denominator = std::sqrt(AddMeanSquare(gradient, n, row + n) + c.epsilon) * (1.0f / rate);
    return LassoStep(c, n, row, row + n + 1, [&](auto width, size_t at, auto& m, auto& d) ELASTIC_LAMBDA {
      m = Load(width, gradient + at);
      d = Splat(width, denominator);
    });
  }
};

struct GroupAdam {
  static constexpr bool kLasso = true;
  using Plain = Adam;

  static ELASTIC_INLINE bool Update(const UpdateConstants& c, float rate, const float* gradient, size_t n, float* row) {
    const AdamCorrection correction = NextCorrection(c, row + 3 * n);
    const float scale = correction.second * (1.0f / rate), unbiased = correction.first, epsilon = c.epsilon;
    const float rest_1 = 1.0f - c.beta_1, rest_2 = 1.0f - c.beta_2;
    return LassoStep(c, n, row, row + 3 * n + 1, [&](auto width, size_t at, auto& m, auto& d) ELASTIC_LAMBDA {
      const auto g = Load(width, gradient + at);
      auto first = Load(width, row + n + at), second = Load(width, row + 2 * n + at);
      first = first + (g - first) * rest_1;
      second = second + (g * g - second) * rest_2;
      Store(row + n + at, first);
      Store(row + 2 * n + at, second);
      m = first * unbiased;
      d = (SquareRoot(second) + epsilon) * scale;
    });
  }
};

// FTRL as Keras has it, times the factor of the group; `linear` is the z of Algorithm 1. The weights hold the
// denominators between the passes.
template <bool kSquareRoot>
struct Ftrl {
  static constexpr bool kLasso = true;
  struct Plain {  // nothing can be said with a learning rate of 0, by which FTRL divides
    static ELASTIC_INLINE void Update(const UpdateConstants&, float, const float*, size_t, float*) {}
  };

  template <typename Vector>
  static ELASTIC_INLINE Vector Root(Vector accumulator, float power) {
    if constexpr (kSquareRoot) return SquareRoot(accumulator);
    return ForEach(accumulator, [&](float value) { return std::pow(value, power); });
  }

  static ELASTIC_INLINE bool Update(const UpdateConstants& c, float rate, const float* gradient, size_t n, float* row) {
    const float l1 = c.l1, power = c.power, two_shrinkage = 2.0f * c.l2_shrinkage;
    const float two_l2 = 2.0f * (c.l2 + c.beta / (2.0f * rate));
    LaneSum squares;
    ForBlocks(n, [&](auto width, size_t at) ELASTIC_LAMBDA {
      const auto g = Load(width, gradient + at), x = Load(width, row + at), old = Load(width, row + n + at);
      const auto accumulator = old + g * g;
      const auto root = Root(accumulator, power);
      const auto shrunk = g + two_shrinkage * x;
      const auto z = Load(width, row + 2 * n + at) + (shrunk - ((root - Root(old, power)) / rate) * x);
      const auto s = ShrunkByL1(width, z, l1);
      squares.Add(width, at, s * s);
      Store(row + n + at, accumulator);
      Store(row + 2 * n + at, z);
      Store(row + at, root / rate + two_l2);
    });
    const float factor = GroupFactor(c.l21, n, squares);
    if (!(factor > 0.0f)) {
      std::memset(row, 0, n * sizeof(float));
      return true;
    }
    ForBlocks(n, [&](auto width, size_t at) ELASTIC_LAMBDA {
      const auto z = Load(width, row + 2 * n + at);
      Store(row + at, (factor * ShrunkByL1(width, z, l1)) / Load(width, row + at));
    });
    return false;
  }
};

// kDim: the number of weights, 0 if it is not known at compile time.
template <typename Optimizer, size_t kDim>
void UpdateRowsOf(const UpdateBlock& block) {
  const size_t n = kDim != 0 ? kDim : block.dim;
  const UpdateConstants c = *block.constants;
  const float rate = block.learning_rate;
  for (size_t i = 0; i < block.count; ++i) {
    float* row = block.rows[i];
    if constexpr (!Optimizer::kLasso) {
      Optimizer::Update(c, rate, block.gradients[i], n, row);
    } else if (rate > 0.0f) {
      block.zero[i] = Optimizer::Update(c, rate, block.gradients[i], n, row);
    } else {
      Optimizer::Plain::Update(c, rate, block.gradients[i], n, row);
      block.zero[i] = AllZero(row, n);
    }
  }
}

template <typename Optimizer>
void UpdateRows(const UpdateBlock& block) {
  switch (block.dim) {
    case 8:
      return UpdateRowsOf<Optimizer, 8>(block);
    case 16:
      return UpdateRowsOf<Optimizer, 16>(block);
    case 32:
      return UpdateRowsOf<Optimizer, 32>(block);
    case 64:
      return UpdateRowsOf<Optimizer, 64>(block);
    default:
      return UpdateRowsOf<Optimizer, 0>(block);
  }
}

constexpr UpdateKernels kUpdateKernels = {
    UpdateRows<Sgd>,        UpdateRows<Adagrad>,      UpdateRows<RowwiseAdagrad>,      UpdateRows<Adam>,
    UpdateRows<GroupSgd>,   UpdateRows<GroupAdagrad>, UpdateRows<GroupRowwiseAdagrad>, UpdateRows<GroupAdam>,
    UpdateRows<Ftrl<true>>, UpdateRows<Ftrl<false>>,
};

}  // namespace
}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_OPTIMIZERS_UPDATE_KERNELS_LOOPS_H_
