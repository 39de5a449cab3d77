// SPDX-License-Identifier: Apache-2.0
// Adagrad as Keras 3 has it: a ← a + g·g; x ← x − (lr · g) / √(a + ε). Slots: a [dim], which begins at
// initial_accumulator.
#include <algorithm>
#include <cmath>

#include "src/base/vector_clones.h"
#include "src/config/json_fields.h"
#include "src/optimizers/optimizer.h"

namespace elastic_training {
namespace {

ELASTIC_VECTOR_CLONES
void AdagradRows(float* const* rows, const float* const* gradients, size_t count, size_t dim, float learning_rate,
                 float epsilon) {
  for (size_t i = 0; i < count; ++i) {
    float* __restrict x = rows[i];
    float* __restrict a = rows[i] + dim;
    const float* __restrict g = gradients[i];
    for (size_t j = 0; j < dim; ++j) {
      a[j] += g[j] * g[j];
      x[j] -= learning_rate * g[j] / std::sqrt(a[j] + epsilon);
    }
  }
}

class Adagrad final : public Optimizer {
 public:
  Adagrad(size_t dim, float initial_accumulator, float epsilon)
      : Optimizer(dim, /*slots=*/dim, /*hyper_size=*/1, /*tells_outcomes=*/false),
        initial_accumulator_(initial_accumulator),
        epsilon_(epsilon) {}

  void InitSlots(float* slots) const override { std::fill_n(slots, dim(), initial_accumulator_); }

  void Apply(float* const* rows, const float* const* gradients, size_t count, const OptimizerStep& step,
             RowOutcome*) const override {
    AdagradRows(rows, gradients, count, dim(), step.hyper[0], epsilon_);
  }

 private:
  const float initial_accumulator_, epsilon_;
};

}  // namespace

std::unique_ptr<Optimizer> MakeAdagrad(const nlohmann::json& config, size_t dim) {
  const JsonFields fields("optimizer adagrad", config);
  fields.RefuseOthers({"kind", "initial_accumulator", "epsilon"});
  const double initial = fields.Number("initial_accumulator", 0.1, 0, 1e30);
  const double epsilon = fields.Number("epsilon", 1e-7, 0, 1);
  return std::make_unique<Adagrad>(dim, static_cast<float>(initial), static_cast<float>(epsilon));
}

}  // namespace elastic_training
