// SPDX-License-Identifier: Apache-2.0
// A live model at one epoch: what all ops of a request read.
#ifndef PROCESSOR_LIVE_EPOCH_VIEW_H_
#define PROCESSOR_LIVE_EPOCH_VIEW_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "src/live/formula_graph.h"
#include "src/live/live_description.h"
#include "src/live/table_view.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/framework/variant_tensor_data.h"

namespace processor {

class EpochView;

/// What kernels make of weights, by slot. Kernels of several sessions that make the same share a slot. Any thread may call.
class WeightSlots {
 public:
  static constexpr int kMost = 1024;
  /// Makes the object of an epoch from the formulas of a view.
  using Factory = std::function<absl::Status(const EpochView& view, std::shared_ptr<const void>* object)>;

  /// What the object of a slot depends on.
  struct Needs {
    std::vector<int> formulas;   // their numbers
    bool has_precision = false;  // also the precision of the view
  };

  /// Adds a kernel, `owner`, to the slot of a key.
  /// \return RESOURCE_EXHAUSTED if a model has more than kMost slots.
  absl::Status Add(const std::string& key, Needs needs, Factory factory, const void* owner, int* slot);
  /// Removes a kernel from all slots; waits until its factory has returned.
  void Remove(const void* owner);

  /// Makes the object of a slot; null if no kernel uses it any more. \return what its factory returns.
  absl::Status Make(int slot, const EpochView& view, std::shared_ptr<const void>* object) const;
  /// Returns what the slots that kernels use depend on; of others, nothing.
  std::vector<Needs> AllNeeds() const;

 private:
  // A kernel. Objects are made without the lock of the slots, so that no request waits for one that a thread makes in idle
  // time.
  struct Maker {
    const void* owner;
    Factory factory;
    std::shared_mutex mutex;  // held, shared, while it makes an object
    bool removed = false;
  };
  struct Slot {
    Needs needs;
    std::vector<std::shared_ptr<Maker>> makers;
  };

  mutable std::shared_mutex mutex_;
  std::map<std::string, int> by_key_;
  std::vector<Slot> slots_;
};

/// What does not change with the epochs.
struct LiveParts {
  LiveDescription description;
  std::map<std::string, int> tables;  // numbers of tables by the names of their resources
  std::unique_ptr<FormulaGraph> formulas;
  const std::shared_ptr<WeightSlots> slots = std::make_shared<WeightSlots>();
};

struct EpochFacts {
  uint64_t epoch = 0;
  ChainHash chain{};
  uint64_t term = 0;
  int64_t event_time = kUnknownTime;  // µs since 1970
  int64_t write_time = 0;

  /// The time of what the epoch knows, in microseconds since 1970; 0 if that is not known.
  int64_t knows_us() const { return event_time != kUnknownTime ? event_time : write_time; }
};

/// Immutable, apart from weights that are made when they are first asked for. Any thread may read it.
class EpochView {
 public:
  /// Makes a view of the same epoch with another precision(). Its weights are made when they are first asked for, apart from
  /// those that do not depend on it. The caller must keep `view` as long as it.
  static std::shared_ptr<EpochView> InPrecision(const EpochView& view, std::string precision);

  const EpochFacts& facts() const { return facts_; }
  /// What counts instead of the attribute `precision` of ops; empty: the attribute.
  const std::string& precision() const { return precision_; }
  const LiveParts& parts() const { return *parts_; }
  const TableView& table(int number) const { return tables_[number]; }
  /// Views of a model with the same number have the same overlays, so their rows begin at the same addresses.
  uint32_t layout() const { return layout_; }
  /// Returns the value of a formula; null if it is still that of the first epoch.
  const tensorflow::Tensor* formula(int number) const { return formulas_[number].get(); }
  /// Returns a source variable; null if it is still that of the first epoch.
  const tensorflow::Tensor* variable(int number) const { return variables_[number].get(); }

  /// Returns the object of a slot, which lives as long as the view.
  absl::Status Weights(int slot, const void** object) const {
    *object = weights_[slot].load(std::memory_order_acquire);
    return *object != nullptr ? absl::OkStatus() : MakeWeights(slot, object);
  }

 private:
  friend class LiveModel;

  explicit EpochView(std::shared_ptr<const LiveParts> parts) : parts_(std::move(parts)) {}

  absl::Status MakeWeights(int slot, const void** object) const;
  /// Makes the objects of all slots; takes those that are still right from the view before.
  absl::Status PrepareWeights(const EpochView& before, const std::vector<bool>& changed_formulas);
  void SetWeights(int slot, std::shared_ptr<const void> object) const;
  /// Returns the object of a slot; null if there is none yet.
  std::shared_ptr<const void> MadeWeights(int slot) const;

  const std::shared_ptr<const LiveParts> parts_;
  std::string precision_;
  EpochFacts facts_;
  std::vector<TableView> tables_;
  uint32_t layout_ = 0;
  std::vector<std::shared_ptr<const tensorflow::Tensor>> formulas_, variables_;
  mutable std::array<std::atomic<const void*>, WeightSlots::kMost> weights_{};
  mutable std::mutex mutex_;  // of those that make weights
  mutable std::vector<std::shared_ptr<const void>> owned_weights_;
};

/// What is in the tensor that RecPinView returns.
struct PinnedView {
  static std::string TypeName() { return "recprocessor::PinnedView"; }
  // A view does not leave the process.
  void Encode(tensorflow::VariantTensorData*) const {}
  static bool Decode(const tensorflow::VariantTensorData&) { return false; }

  std::shared_ptr<const EpochView> view;
};

/// Makes a scalar tensor, which keeps the view as long as it exists.
tensorflow::Tensor MakeViewTensor(std::shared_ptr<const EpochView> view);

/// Returns the view of such a tensor. \return INVALID_ARGUMENT for any other.
absl::Status ReadViewTensor(const tensorflow::Tensor& tensor, const EpochView** view);

}  // namespace processor

#endif  // PROCESSOR_LIVE_EPOCH_VIEW_H_
