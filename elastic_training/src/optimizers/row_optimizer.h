// SPDX-License-Identifier: Apache-2.0
// The optimizers whose steps are kernels of update_kernels.h: what they keep per row, and when lasso releases a row.
#ifndef ELASTIC_TRAINING_OPTIMIZERS_ROW_OPTIMIZER_H_
#define ELASTIC_TRAINING_OPTIMIZERS_ROW_OPTIMIZER_H_

#include <memory>
#include <vector>

#include "src/config/json_fields.h"
#include "src/optimizers/optimizer.h"
#include "src/optimizers/update_kernels.h"

namespace elastic_training {

/// Sparse group lasso after Algorithm 1 of "Adaptive Optimizers with Sparse Group Lasso": λ1 makes single weights zero, λ21
/// whole rows, λ2 makes weights small. Without any, the optimizer takes its plain step.
struct GroupLasso {
  float l1 = 0;
  float l2 = 0;
  float l21 = 0;
  /// Number of updates of the table after which a row that stayed zero is released; 0: never.
  uint32_t release_after = 0;

  bool any() const { return l1 > 0 || l2 > 0 || l21 > 0; }

  /// Reads "l1", "l2", "l21" and "release_after".
  static GroupLasso Read(const JsonFields& fields);
};

/// A run of floats of each row, all with the same value at first.
struct SlotRun {
  size_t floats;
  float initial;
};

/// Steps rows with kernels. The slots are those of the kernel, in its order, then, if rows are released, the number of the
/// update since which the row is zero (32 bits of an unsigned integer, 0 if it is not).
class RowOptimizer final : public Optimizer {
 public:
  RowOptimizer(size_t dim, std::vector<SlotRun> slots, UpdateRowsFn kernel, const UpdateConstants& constants,
               const GroupLasso& lasso);

  void InitSlots(float* slots) const override;
  void Apply(float* const* rows, const float* const* gradients, size_t count, const OptimizerStep& step,
             RowOutcome* outcomes) const override;
  bool ShallRelease(const float* row, uint64_t step_number) const override;

 private:
  RowOutcome Outcome(float* row, bool zero, uint64_t step_number) const;

  const std::vector<SlotRun> runs_;
  const UpdateRowsFn kernel_;
  const uint32_t release_after_;
  UpdateConstants constants_;
  std::vector<AdamCorrection> corrections_;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_OPTIMIZERS_ROW_OPTIMIZER_H_
