// SPDX-License-Identifier: Apache-2.0
// FTRL as Keras 3 and TensorFlow have it, with p = −learning_rate_power:
//   a' = a + g · g; z ← z + (g + 2 · l2_shrinkage · x) − ((a'^p − a^p) / lr) · x; a ← a';
//   x ← (clip(z, −l1, l1) − z) / (a^p / lr + 2 · (l2 + beta / (2 · lr))),
// with l21 times max(0, 1 − √dim · l21 / ‖clip(z, −l1, l1) − z‖). Slots: a [dim], z [dim] ("linear"). As in Keras z begins
// at 0 whatever x is, so the first steps forget a part of the initial weights. A step with lr = 0 changes nothing.
#include "src/optimizers/row_optimizer.h"

namespace elastic_training {

std::unique_ptr<Optimizer> MakeFtrl(const nlohmann::json& config, size_t dim) {
  const JsonFields fields("optimizer ftrl", config);
  fields.RefuseOthers({"kind", "initial_accumulator", "learning_rate_power", "l2_shrinkage", "beta", "l1", "l2", "l21",
                       "release_after"});
  // An accumulator of 0 would be divided by if the first gradient has a zero.
  const float initial = static_cast<float>(fields.Number("initial_accumulator", 0.1, 1e-30, 1e30));
  UpdateConstants constants;
  constants.power = -static_cast<float>(fields.Number("learning_rate_power", -0.5, -1, 0));
  constants.l2_shrinkage = static_cast<float>(fields.Number("l2_shrinkage", 0, 0, 1e6));
  constants.beta = static_cast<float>(fields.Number("beta", 0, 0, 1e6));
  const UpdateKernels& kernels = BestUpdateKernels();
  const UpdateRowsFn kernel = constants.power == 0.5f ? kernels.ftrl : kernels.ftrl_power;
  const std::vector<SlotRun> slots = {{dim, initial}, {dim, 0.0f}};
  return std::make_unique<RowOptimizer>(dim, slots, kernel, constants, GroupLasso::Read(fields));
}

}  // namespace elastic_training
