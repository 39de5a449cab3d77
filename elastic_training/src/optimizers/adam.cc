// SPDX-License-Identifier: Apache-2.0
// Adam as Keras 3 has it, but t counts the updates of the row, so that rows that come late begin as early ones did:
//   t ← t + 1; m ← m + (g − m) · (1 − β₁); v ← v + (g · g − v) · (1 − β₂);
//   x ← x − (m · (lr · √(1 − β₂ᵗ) / (1 − β₁ᵗ))) / (√v + ε).
// Slots: m [dim], v [dim], t [1]; with lasso the residual [dim]: there m̂ = m / (1 − β₁ᵗ) and √V = (√v + ε) / √(1 − β₂ᵗ).
#include "src/optimizers/row_optimizer.h"

namespace elastic_training {
namespace {

constexpr double kLargestBeta = 1 - 0x1p-24;  // the largest float below 1

}  // namespace

std::unique_ptr<Optimizer> MakeAdam(const nlohmann::json& config, size_t dim) {
  const JsonFields fields("optimizer adam", config);
  fields.RefuseOthers({"kind", "beta_1", "beta_2", "epsilon", "l1", "l2", "l21", "release_after"});
  UpdateConstants constants;
  constants.beta_1 = static_cast<float>(fields.Number("beta_1", 0.9, 0, kLargestBeta));
  constants.beta_2 = static_cast<float>(fields.Number("beta_2", 0.999, 0, kLargestBeta));
  constants.epsilon = static_cast<float>(fields.Number("epsilon", 1e-7, 1e-30, 1));
  const GroupLasso lasso = GroupLasso::Read(fields);
  const UpdateKernels& kernels = BestUpdateKernels();
  std::vector<SlotRun> slots = {{2 * dim + 1, 0.0f}};
  if (lasso.any()) slots.push_back({dim, 0.0f});
  return std::make_unique<RowOptimizer>(dim, std::move(slots), lasso.any() ? kernels.group_adam : kernels.adam,
                                        constants, lasso);
}

}  // namespace elastic_training
