// SPDX-License-Identifier: Apache-2.0
// The optimizers as C functions, by which tests/elastic_training/optimizers compares them with NumPy step by step.
#include <cstring>
#include <exception>
#include <memory>
#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "src/optimizers/optimizer.h"

#define EXPORTED extern "C" __attribute__((visibility("default")))

using elastic_training::Optimizer;
using elastic_training::OptimizerStep;
using elastic_training::RowOutcome;

/// Returns an optimizer of the JSON object, or null and the message of the error in `error` [size].
EXPORTED Optimizer* optimizer_create(const char* config, size_t dim, char* error, size_t size) {
  try {
    return Optimizer::Create(nlohmann::json::parse(config), dim).release();
  } catch (const std::exception& e) {
    std::strncpy(error, e.what(), size - 1);
    return nullptr;
  }
}

EXPORTED void optimizer_free(Optimizer* optimizer) { delete optimizer; }

EXPORTED size_t optimizer_slots(const Optimizer* optimizer) { return optimizer->slots(); }

EXPORTED int optimizer_tells_outcomes(const Optimizer* optimizer) { return optimizer->tells_outcomes() ? 1 : 0; }

EXPORTED void optimizer_init(const Optimizer* optimizer, float* slots) { optimizer->InitSlots(slots); }

/// Updates rows `numbers` [count] of `rows` [*, dim + slots] by `gradients` [count, dim]; writes `outcomes` [count].
EXPORTED void optimizer_apply(const Optimizer* optimizer, float* rows, const int64_t* numbers, const float* gradients,
                              size_t count, float learning_rate, uint64_t step, uint8_t* outcomes) {
  std::vector<float*> row_pointers(count);
  std::vector<const float*> gradient_pointers(count);
  for (size_t i = 0; i < count; ++i) {
    row_pointers[i] = rows + static_cast<size_t>(numbers[i]) * (optimizer->dim() + optimizer->slots());
    gradient_pointers[i] = gradients + i * optimizer->dim();
  }
  optimizer->Apply(row_pointers.data(), gradient_pointers.data(), count, OptimizerStep{&learning_rate, step},
                   reinterpret_cast<RowOutcome*>(outcomes));
}

EXPORTED int optimizer_shall_release(const Optimizer* optimizer, const float* row, uint64_t step) {
  return optimizer->ShallRelease(row, step) ? 1 : 0;
}
