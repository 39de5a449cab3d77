// SPDX-License-Identifier: Apache-2.0
// Adagrad as Keras 3 has it: a ← a + g · g; x ← x − (lr · g) / √(a + ε). Slots: a [dim], which begins at
// initial_accumulator.
// Row-wise Adagrad has one accumulator per row: a ← a + Σ g · g / dim; x ← x − (lr / √(a + ε)) · g. Slots: a [1].
// With lasso, the residual [dim] follows.
#include "src/optimizers/row_optimizer.h"

namespace elastic_training {
namespace {

std::unique_ptr<Optimizer> MakeAdagradOf(const JsonFields& fields, size_t dim, size_t accumulators, UpdateRowsFn plain,
                                         UpdateRowsFn group) {
  fields.RefuseOthers({"kind", "initial_accumulator", "epsilon", "l1", "l2", "l21", "release_after"});
  const float initial = static_cast<float>(fields.Number("initial_accumulator", 0.1, 0, 1e30));
  UpdateConstants constants;
  constants.epsilon = static_cast<float>(fields.Number("epsilon", 1e-7, 0, 1));
  if (initial == 0 && constants.epsilon == 0) {
    throw std::invalid_argument(fields.name() +
                                ": initial_accumulator and epsilon are 0, expected one above 0, because "
                                "a gradient of 0 would be divided by 0");
  }
  const GroupLasso lasso = GroupLasso::Read(fields);
  std::vector<SlotRun> slots = {{accumulators, initial}};
  if (lasso.any()) slots.push_back({dim, 0.0f});
  return std::make_unique<RowOptimizer>(dim, std::move(slots), lasso.any() ? group : plain, constants, lasso);
}

}  // namespace

std::unique_ptr<Optimizer> MakeAdagrad(const nlohmann::json& config, size_t dim) {
  const UpdateKernels& kernels = BestUpdateKernels();
  return MakeAdagradOf(JsonFields("optimizer adagrad", config), dim, dim, kernels.adagrad, kernels.group_adagrad);
}

std::unique_ptr<Optimizer> MakeRowwiseAdagrad(const nlohmann::json& config, size_t dim) {
  const UpdateKernels& kernels = BestUpdateKernels();
  return MakeAdagradOf(JsonFields("optimizer rowwise_adagrad", config), dim, 1, kernels.rowwise_adagrad,
                       kernels.group_rowwise_adagrad);
}

}  // namespace elastic_training
