// SPDX-License-Identifier: Apache-2.0
#include "src/optimizers/row_optimizer.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <stdexcept>

namespace elastic_training {
namespace {

// Rows with so many updates or fewer are nearly all rows; beyond, powers are computed.
constexpr uint32_t kStoredCorrections = 1024;
// Outcomes of one call of a kernel.
constexpr size_t kBlockRows = 256;

size_t FloatsOf(const std::vector<SlotRun>& runs) {
  return std::accumulate(runs.begin(), runs.end(), size_t{0},
                         [](size_t sum, const SlotRun& run) { return sum + run.floats; });
}

// 0 means "not zero", so the number 2^32 · k counts as the one after it.
uint32_t ZeroSinceOf(uint64_t step_number) { return std::max<uint32_t>(static_cast<uint32_t>(step_number), 1); }

}  // namespace

GroupLasso GroupLasso::Read(const JsonFields& fields) {
  GroupLasso lasso;
  lasso.l1 = static_cast<float>(fields.Number("l1", 0, 0, 1e6));
  lasso.l2 = static_cast<float>(fields.Number("l2", 0, 0, 1e6));
  lasso.l21 = static_cast<float>(fields.Number("l21", 0, 0, 1e6));
  lasso.release_after = static_cast<uint32_t>(fields.Integer("release_after", 0, 0, 0x7fffffff));
  if (lasso.release_after > 0 && lasso.l1 == 0 && lasso.l21 == 0) {
    throw std::invalid_argument(fields.name() + ": release_after is " + std::to_string(lasso.release_after) +
                                " without l1 or l21, expected 0, because no row becomes zero");
  }
  return lasso;
}

RowOptimizer::RowOptimizer(size_t dim, std::vector<SlotRun> slots, UpdateRowsFn kernel,
                           const UpdateConstants& constants, const GroupLasso& lasso)
    : Optimizer(dim, FloatsOf(slots) + (lasso.release_after > 0 ? 1 : 0), /*hyper_size=*/1,
                /*tells_outcomes=*/lasso.l1 > 0 || lasso.l21 > 0),
      runs_(std::move(slots)),
      kernel_(kernel),
      release_after_(lasso.release_after),
      constants_(constants) {
  constants_.l1 = lasso.l1;
  constants_.l2 = lasso.l2;
  constants_.l21 = lasso.l21;
  const UpdateKernels& kernels = BestUpdateKernels();
  if (kernel_ == kernels.adam || kernel_ == kernels.group_adam) {
    for (uint32_t t = 1; t <= kStoredCorrections; ++t) corrections_.push_back(CorrectionAfter(constants_, t));
    constants_.corrections = corrections_.data();
    constants_.num_corrections = corrections_.size();
  }
}

void RowOptimizer::InitSlots(float* slots) const {
  for (const SlotRun& run : runs_) slots = std::fill_n(slots, run.floats, run.initial);
  if (release_after_ > 0) *slots = 0;
}

void RowOptimizer::Apply(float* const* rows, const float* const* gradients, size_t count, const OptimizerStep& step,
                         RowOutcome* outcomes) const {
  bool zero[kBlockRows];
  for (size_t first = 0; first < count; first += kBlockRows) {
    const size_t n = std::min(kBlockRows, count - first);
    kernel_({&constants_, step.hyper[0], rows + first, gradients + first, n, dim(), zero});
    if (!tells_outcomes()) continue;
    for (size_t i = 0; i < n; ++i) outcomes[first + i] = Outcome(rows[first + i], zero[i], step.number);
  }
}

RowOutcome RowOptimizer::Outcome(float* row, bool zero, uint64_t step_number) const {
  if (release_after_ == 0) return zero ? RowOutcome::kZero : RowOutcome::kNonzero;
  if (zero && ShallRelease(row, step_number)) return RowOutcome::kRelease;
  uint32_t since;
  std::memcpy(&since, row + dim() + slots() - 1, sizeof(since));
  if (!zero) {
    since = 0;
  } else if (since == 0) {
    since = ZeroSinceOf(step_number);
  }
  std::memcpy(row + dim() + slots() - 1, &since, sizeof(since));
  return zero ? RowOutcome::kZero : RowOutcome::kNonzero;
}

bool RowOptimizer::ShallRelease(const float* row, uint64_t step_number) const {
  if (release_after_ == 0) return false;
  uint32_t since;
  std::memcpy(&since, row + dim() + slots() - 1, sizeof(since));
  // Negative in a table whose count of updates began again, after rows came from another one.
  const int32_t updates = static_cast<int32_t>(ZeroSinceOf(step_number) - since);
  return since != 0 && updates >= static_cast<int32_t>(release_after_);
}

}  // namespace elastic_training
