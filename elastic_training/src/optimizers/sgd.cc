// SPDX-License-Identifier: Apache-2.0
// Gradient descent: x ← x − (lr · g). No slots.
#include "src/base/vector_clones.h"
#include "src/config/json_fields.h"
#include "src/optimizers/optimizer.h"

namespace elastic_training {
namespace {

ELASTIC_VECTOR_CLONES
void SgdRows(float* const* rows, const float* const* gradients, size_t count, size_t dim, float learning_rate) {
  for (size_t i = 0; i < count; ++i) {
    float* __restrict x = rows[i];
    const float* __restrict g = gradients[i];
    for (size_t j = 0; j < dim; ++j) x[j] -= learning_rate * g[j];
  }
}

class Sgd final : public Optimizer {
 public:
  explicit Sgd(size_t dim) : Optimizer(dim, /*slots=*/0, /*hyper_size=*/1, /*tells_outcomes=*/false) {}

  void InitSlots(float*) const override {}

  void Apply(float* const* rows, const float* const* gradients, size_t count, const OptimizerStep& step,
             RowOutcome*) const override {
    SgdRows(rows, gradients, count, dim(), step.hyper[0]);
  }
};

}  // namespace

std::unique_ptr<Optimizer> MakeSgd(const nlohmann::json& config, size_t dim) {
  JsonFields("optimizer sgd", config).RefuseOthers({"kind"});
  return std::make_unique<Sgd>(dim);
}

}  // namespace elastic_training
