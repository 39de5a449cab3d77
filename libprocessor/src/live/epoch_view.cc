// SPDX-License-Identifier: Apache-2.0
#include "src/live/epoch_view.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/variant.h"

namespace processor {

absl::Status WeightSlots::Add(const std::string& key, std::vector<int> formulas, Factory factory, const void* owner,
                              int* slot) {
  std::unique_lock<std::shared_mutex> lock(mutex_);
  const auto [it, added] = by_key_.try_emplace(key, static_cast<int>(slots_.size()));
  if (added) {
    if (slots_.size() == kMost) {
      by_key_.erase(it);
      return absl::ResourceExhaustedError(
          absl::StrCat("live model: more than ", kMost, " kernels with weights, expected fewer"));
    }
    slots_.push_back({std::move(formulas), {}});
  }
  *slot = it->second;
  slots_[*slot].factories.emplace_back(owner, std::move(factory));
  return absl::OkStatus();
}

void WeightSlots::Remove(const void* owner) {
  std::unique_lock<std::shared_mutex> lock(mutex_);
  for (Slot& slot : slots_) {
    auto& factories = slot.factories;
    factories.erase(
        std::remove_if(factories.begin(), factories.end(), [&](const auto& known) { return known.first == owner; }),
        factories.end());
  }
}

absl::Status WeightSlots::Make(int slot, const EpochView& view, std::shared_ptr<const void>* object) const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  const auto& factories = slots_[slot].factories;
  if (factories.empty()) return absl::OkStatus();
  return factories.front().second(view, object);
}

std::vector<std::vector<int>> WeightSlots::Formulas() const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  std::vector<std::vector<int>> formulas;
  for (const Slot& slot : slots_) {
    formulas.push_back(slot.factories.empty() ? std::vector<int>() : slot.formulas);
  }
  return formulas;
}

void EpochView::SetWeights(int slot, std::shared_ptr<const void> object) const {
  weights_[slot].store(object.get(), std::memory_order_release);
  owned_weights_.push_back(std::move(object));
}

absl::Status EpochView::MakeWeights(int slot, const void** object) const {
  std::lock_guard<std::mutex> lock(mutex_);
  *object = weights_[slot].load(std::memory_order_relaxed);
  if (*object != nullptr) return absl::OkStatus();
  std::shared_ptr<const void> made;
  if (absl::Status s = parts_->slots->Make(slot, *this, &made); !s.ok()) return s;
  *object = made.get();
  SetWeights(slot, std::move(made));
  return absl::OkStatus();
}

absl::Status EpochView::PrepareWeights(const EpochView& before, const std::vector<bool>& changed_formulas) {
  const std::vector<std::vector<int>> slots = parts_->slots->Formulas();
  for (size_t i = 0; i < slots.size(); ++i) {
    const int slot = static_cast<int>(i);
    const bool changed =
        std::any_of(slots[i].begin(), slots[i].end(), [&](int formula) { return changed_formulas[formula]; });
    if (changed) {
      std::shared_ptr<const void> made;
      if (absl::Status s = parts_->slots->Make(slot, *this, &made); !s.ok()) return s;
      if (made != nullptr) SetWeights(slot, std::move(made));
      continue;
    }
    std::lock_guard<std::mutex> lock(before.mutex_);
    const void* const same = before.weights_[slot].load(std::memory_order_relaxed);
    for (const std::shared_ptr<const void>& owned : before.owned_weights_) {
      if (same != nullptr && owned.get() == same) SetWeights(slot, owned);
    }
  }
  return absl::OkStatus();
}

tensorflow::Tensor MakeViewTensor(std::shared_ptr<const EpochView> view) {
  tensorflow::Tensor tensor(tensorflow::DT_VARIANT, {});
  tensor.scalar<tensorflow::Variant>()() = PinnedView{std::move(view)};
  return tensor;
}

absl::Status ReadViewTensor(const tensorflow::Tensor& tensor, const EpochView** view) {
  const PinnedView* pinned = nullptr;
  if (tensor.dtype() == tensorflow::DT_VARIANT && tensor.dims() == 0) {
    pinned = tensor.scalar<tensorflow::Variant>()().get<PinnedView>();
  }
  if (pinned == nullptr || pinned->view == nullptr) {
    return absl::InvalidArgumentError("view: another tensor, expected the output of RecPinView");
  }
  *view = pinned->view.get();
  return absl::OkStatus();
}

}  // namespace processor
