// SPDX-License-Identifier: Apache-2.0
// Gradient descent: x ← x − lr · g. No slots; with lasso (V = 1) the residual [dim].
#include "src/optimizers/row_optimizer.h"

namespace elastic_training {

std::unique_ptr<Optimizer> MakeSgd(const nlohmann::json& config, size_t dim) {
  const JsonFields fields("optimizer sgd", config);
  fields.RefuseOthers({"kind", "l1", "l2", "l21", "release_after"});
  const GroupLasso lasso = GroupLasso::Read(fields);
  const UpdateKernels& kernels = BestUpdateKernels();
  if (!lasso.any())
    return std::make_unique<RowOptimizer>(dim, std::vector<SlotRun>{}, kernels.sgd, UpdateConstants{}, lasso);
  return std::make_unique<RowOptimizer>(dim, std::vector<SlotRun>{{dim, 0.0f}}, kernels.group_sgd, UpdateConstants{},
                                        lasso);
}

}  // namespace elastic_training
