// SPDX-License-Identifier: Apache-2.0
// One step of blocks of rows, for each optimizer and instruction set. Any thread may call the kernels.
//
// Every form computes the same bits: each product, sum, quotient and root is rounded to fp32, in the order that
// update_kernels_loops.h writes, and a sum over a row adds element i to lane i mod 16, then lanes 8, 4, 2 and 1 apart.
#ifndef ELASTIC_TRAINING_OPTIMIZERS_UPDATE_KERNELS_H_
#define ELASTIC_TRAINING_OPTIMIZERS_UPDATE_KERNELS_H_

#include <cstddef>
#include <cstdint>
#include <vector>

namespace elastic_training {

/// What Adam divides by, because the moments of a row began at zero, t updates of the row ago.
struct AdamCorrection {
  float step;    // √(1 − β₂ᵗ) / (1 − β₁ᵗ)
  float first;   // 1 / (1 − β₁ᵗ)
  float second;  // 1 / √(1 − β₂ᵗ)
};

/// The constants of an optimizer.
struct UpdateConstants {
  float epsilon = 1e-7f;
  float beta_1 = 0.9f;
  float beta_2 = 0.999f;
  float power = 0.5f;                           // FTRL: the accumulator's exponent, 0.5 takes square roots
  float l2_shrinkage = 0;                       // FTRL
  float beta = 0;                               // FTRL
  float l1 = 0;                                 // λ1
  float l2 = 0;                                 // λ2
  float l21 = 0;                                // λ21
  const AdamCorrection* corrections = nullptr;  // after 1, 2, ... updates
  size_t num_corrections = 0;
};

/// Rows to update, whose weights [dim] are followed by the slots that the kernel names.
struct UpdateBlock {
  const UpdateConstants* constants;
  float learning_rate;  // finite, at least 0
  float* const* rows;
  const float* const* gradients;  // [dim] each
  size_t count;
  size_t dim;
  bool* zero;  // [count], written by kernels with lasso: whether all weights of the row are zero now
};

using UpdateRowsFn = void (*)(const UpdateBlock& block);

struct UpdateKernels {
  UpdateRowsFn sgd;
  UpdateRowsFn adagrad;          // accumulator [dim]
  UpdateRowsFn rowwise_adagrad;  // accumulator [1]
  UpdateRowsFn adam;             // momentum [dim], velocity [dim], number of updates [1]
  // With sparse group lasso.
  UpdateRowsFn group_sgd;              // residual [dim]
  UpdateRowsFn group_adagrad;          // accumulator [dim], residual [dim]
  UpdateRowsFn group_rowwise_adagrad;  // accumulator [1], residual [dim]
  UpdateRowsFn group_adam;             // momentum [dim], velocity [dim], number of updates [1], residual [dim]
  UpdateRowsFn ftrl;                   // accumulator [dim], linear [dim]; with and without lasso
  UpdateRowsFn ftrl_power;             // the same for any power
};

enum class UpdateIsa { kPlain, kAvx2, kAvx512 };

/// Returns the instruction sets of this CPU for which kernels have a form, the plain one first.
std::vector<UpdateIsa> SupportedUpdateIsas();

/// Returns the kernels for an instruction set that this CPU has.
const UpdateKernels& UpdateKernelsFor(UpdateIsa isa);

/// Returns the fastest kernels for this CPU.
const UpdateKernels& BestUpdateKernels();

/// Returns what Adam divides by after `updates` (at least 1) updates of a row. Powers are computed in fp64, by squaring.
AdamCorrection CorrectionAfter(const UpdateConstants& constants, uint32_t updates);

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_OPTIMIZERS_UPDATE_KERNELS_H_
