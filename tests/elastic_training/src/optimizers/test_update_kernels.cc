// SPDX-License-Identifier: Apache-2.0
// Every form of the kernels computes the same bits, and writes nothing beyond a row.
#include "src/optimizers/update_kernels.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>
#include <vector>

namespace elastic_training {
namespace {

struct KernelCase {
  const char* name;
  UpdateRowsFn UpdateKernels::* kernel;
  size_t runs;    // slots [dim]
  size_t floats;  // slots [1]
};

constexpr KernelCase kKernelCases[] = {
    {"sgd", &UpdateKernels::sgd, 0, 0},
    {"adagrad", &UpdateKernels::adagrad, 1, 0},
    {"rowwise_adagrad", &UpdateKernels::rowwise_adagrad, 0, 1},
    {"adam", &UpdateKernels::adam, 2, 1},
    {"group_sgd", &UpdateKernels::group_sgd, 1, 0},
    {"group_adagrad", &UpdateKernels::group_adagrad, 2, 0},
    {"group_rowwise_adagrad", &UpdateKernels::group_rowwise_adagrad, 1, 1},
    {"group_adam", &UpdateKernels::group_adam, 3, 1},
    {"ftrl", &UpdateKernels::ftrl, 2, 0},
    {"ftrl_power", &UpdateKernels::ftrl_power, 2, 0},
};

constexpr size_t kRows = 5;
constexpr float kGuard = 12345.0f;

// Returns the rows, each with a float behind it, and the flags of zero rows after some steps.
std::vector<float> StepsWith(UpdateIsa isa, const KernelCase& one, size_t dim, float learning_rate) {
  const size_t stride = dim * (1 + one.runs) + one.floats + 1;
  std::mt19937 random(static_cast<unsigned>(dim));
  std::normal_distribution<float> normal;
  UpdateConstants constants;
  constants.l1 = 0.05f;
  constants.l2 = 0.01f;
  constants.l21 = 0.5f;
  constants.power = one.kernel == &UpdateKernels::ftrl ? 0.5f : 0.3f;
  std::vector<float> rows(kRows * stride, 0.25f);
  for (size_t r = 0; r < kRows; ++r) {
    // Adam counts updates; row 4 comes to where they are no longer counted.
    if (one.floats == 1) rows[r * stride + dim * (one.runs == 3 ? 3 : 1 + one.runs)] = r == 4 ? 16777215.0f : 0.0f;
    rows[(r + 1) * stride - 1] = kGuard;
  }
  std::vector<float> gradients(kRows * dim);
  std::vector<float*> row_pointers;
  std::vector<const float*> gradient_pointers;
  for (size_t r = 0; r < kRows; ++r) {
    row_pointers.push_back(&rows[r * stride]);
    gradient_pointers.push_back(&gradients[r * dim]);
  }
  bool zero[kRows] = {};
  for (int step = 0; step < 20; ++step) {
    for (float& g : gradients) g = normal(random) * (step % 3 == 0 ? 0.01f : 1.0f);
    (UpdateKernelsFor(isa).*
     one.kernel)({&constants, learning_rate, row_pointers.data(), gradient_pointers.data(), kRows, dim, zero});
    for (size_t r = 0; r < kRows; ++r) rows.push_back(zero[r] ? 1.0f : 0.0f);
    for (size_t r = 0; r < kRows; ++r) row_pointers[r] = &rows[r * stride];
  }
  return rows;
}

TEST(UpdateKernels, AllFormsComputeTheSameBits) {
  for (const KernelCase& one : kKernelCases) {
    for (size_t dim = 1; dim <= 70; ++dim) {
      for (const float learning_rate : {0.1f, 0.0f}) {
        const std::vector<float> expected = StepsWith(UpdateIsa::kPlain, one, dim, learning_rate);
        for (const UpdateIsa isa : SupportedUpdateIsas()) {
          const std::vector<float> got = StepsWith(isa, one, dim, learning_rate);
          ASSERT_EQ(got.size(), expected.size());
          ASSERT_EQ(std::memcmp(got.data(), expected.data(), got.size() * sizeof(float)), 0)
              << one.name << ", dim " << dim << ", form " << static_cast<int>(isa) << ", rate " << learning_rate;
        }
      }
    }
  }
}

TEST(UpdateKernels, NothingBeyondARowIsWritten) {
  for (const KernelCase& one : kKernelCases) {
    for (size_t dim = 1; dim <= 70; ++dim) {
      const size_t stride = dim * (1 + one.runs) + one.floats + 1;
      for (const UpdateIsa isa : SupportedUpdateIsas()) {
        const std::vector<float> rows = StepsWith(isa, one, dim, 0.1f);
        for (size_t r = 1; r <= kRows; ++r) ASSERT_EQ(rows[r * stride - 1], kGuard) << one.name << ", dim " << dim;
      }
    }
  }
}

TEST(UpdateKernels, AdamCorrectsTheFirstUpdateAndHardlyTheMillionth) {
  const UpdateConstants constants;
  const AdamCorrection first = CorrectionAfter(constants, 1);
  EXPECT_NEAR(first.first, 10, 1e-4);
  EXPECT_NEAR(first.second, 31.6228, 1e-2);
  EXPECT_NEAR(first.step, 0.316228, 1e-4);
  const AdamCorrection late = CorrectionAfter(constants, 1000000);
  EXPECT_EQ(late.step, 1);
  EXPECT_EQ(late.first, 1);
  EXPECT_EQ(late.second, 1);
}

}  // namespace
}  // namespace elastic_training
