// SPDX-License-Identifier: Apache-2.0
// What an optimizer does with rows of a table.
//
// A row is a run of floats: weights [dim], then slots [slots()]. The table sums the gradients of equal keys, refuses those
// that are not finite, locks the rows and passes blocks of them. Objects are immutable, so any thread may call them.
//
// A new optimizer: a source with a subclass and its `Make...` function, which is declared at the end of this header and
// listed in optimizer.cc.
#ifndef ELASTIC_TRAINING_OPTIMIZERS_OPTIMIZER_H_
#define ELASTIC_TRAINING_OPTIMIZERS_OPTIMIZER_H_

#include <cstddef>
#include <cstdint>
#include <memory>

#include <nlohmann/json_fwd.hpp>

namespace elastic_training {

/// What a step made of a row.
enum class RowOutcome : uint8_t {
  kNonzero = 0,
  /// All weights are zero.
  kZero = 1,
  /// All weights are zero and have been for so long that the table shall give back weights and slots. The row then reads
  /// zeros; its next gradient finds zero weights and new slots.
  kRelease = 2,
};

/// What is common to all rows of an update.
struct OptimizerStep {
  /// [hyper_size()]; the learning rate is first.
  const float* hyper;
  /// Number of this update of the table, from 1.
  uint64_t number;
};

class Optimizer {
 public:
  /// Makes the optimizer of the "optimizer" object of a table's JSON.
  /// \throws std::invalid_argument that names the field.
  static std::unique_ptr<Optimizer> Create(const nlohmann::json& config, size_t dim);

  virtual ~Optimizer() = default;
  Optimizer(const Optimizer&) = delete;
  Optimizer& operator=(const Optimizer&) = delete;

  size_t dim() const { return dim_; }
  /// Number of floats of slots per row.
  size_t slots() const { return slots_; }
  /// Number of values that come with each update: the learning rate, and what else schedules may change.
  size_t hyper_size() const { return hyper_size_; }
  /// Whether Apply tells outcomes. If not, it ignores `outcomes`, and rows are never released.
  bool tells_outcomes() const { return tells_outcomes_; }

  /// Writes the slots of a new row [slots()].
  virtual void InitSlots(float* slots) const = 0;

  /// Applies a gradient to each of `count` distinct rows.
  /// `rows[i]` is a row [dim + slots()], `gradients[i]` its gradient [dim], finite, not overlapping; `outcomes[i]` is
  /// written if tells_outcomes().
  virtual void Apply(float* const* rows, const float* const* gradients, size_t count, const OptimizerStep& step,
                     RowOutcome* outcomes) const = 0;

  /// Tells whether a row that no gradient reaches shall be released (see RowOutcome::kRelease); for sweeps.
  /// `row` [dim + slots()] has zero weights.
  virtual bool ShallRelease(const float* row, uint64_t step_number) const {
    (void)row, (void)step_number;
    return false;
  }

 protected:
  Optimizer(size_t dim, size_t slots, size_t hyper_size, bool tells_outcomes)
      : dim_(dim), slots_(slots), hyper_size_(hyper_size), tells_outcomes_(tells_outcomes) {}

 private:
  const size_t dim_, slots_, hyper_size_;
  const bool tells_outcomes_;
};

std::unique_ptr<Optimizer> MakeSgd(const nlohmann::json& config, size_t dim);
std::unique_ptr<Optimizer> MakeAdagrad(const nlohmann::json& config, size_t dim);
std::unique_ptr<Optimizer> MakeRowwiseAdagrad(const nlohmann::json& config, size_t dim);
std::unique_ptr<Optimizer> MakeAdam(const nlohmann::json& config, size_t dim);
std::unique_ptr<Optimizer> MakeFtrl(const nlohmann::json& config, size_t dim);

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_OPTIMIZERS_OPTIMIZER_H_
