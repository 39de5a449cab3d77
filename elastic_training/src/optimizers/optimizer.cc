// SPDX-License-Identifier: Apache-2.0
#include "src/optimizers/optimizer.h"

#include <stdexcept>
#include <string>

#include "src/config/json_fields.h"

namespace elastic_training {
namespace {

struct OptimizerKind {
  const char* name;
  std::unique_ptr<Optimizer> (*make)(const nlohmann::json& config, size_t dim);
};

constexpr OptimizerKind kOptimizers[] = {
    {"sgd", MakeSgd},   {"adagrad", MakeAdagrad}, {"rowwise_adagrad", MakeRowwiseAdagrad},
    {"adam", MakeAdam}, {"ftrl", MakeFtrl},
};

}  // namespace

std::unique_ptr<Optimizer> Optimizer::Create(const nlohmann::json& config, size_t dim) {
  const std::string kind = JsonFields("optimizer", config).Text("kind", "sgd", {});
  std::string known;
  for (const OptimizerKind& one : kOptimizers) {
    if (kind == one.name) return one.make(config, dim);
    known += (known.empty() ? "'" : ", '") + std::string(one.name) + "'";
  }
  throw std::invalid_argument("optimizer: kind is '" + kind + "', expected one of " + known);
}

}  // namespace elastic_training
