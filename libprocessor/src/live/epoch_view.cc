// SPDX-License-Identifier: Apache-2.0
#include "src/live/epoch_view.h"

#include <algorithm>
#include <functional>
#include <iterator>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/variant.h"

namespace processor {

absl::Status WeightSlots::Add(const std::string& key, Needs needs, Factory factory, const void* owner, int* slot) {
  auto maker = std::make_shared<Maker>();
  maker->owner = owner;
  maker->factory = std::move(factory);
  std::unique_lock<std::shared_mutex> lock(mutex_);
  const auto [it, added] = by_key_.try_emplace(key, static_cast<int>(slots_.size()));
  if (added) {
    if (slots_.size() == kMost) {
      by_key_.erase(it);
      return absl::ResourceExhaustedError(
          absl::StrCat("live model: more than ", kMost, " kernels with weights, expected fewer"));
    }
    slots_.push_back({std::move(needs), {}});
  }
  *slot = it->second;
  slots_[*slot].makers.push_back(std::move(maker));
  return absl::OkStatus();
}

void WeightSlots::Remove(const void* owner) {
  std::vector<std::shared_ptr<Maker>> removed;
  {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    for (Slot& slot : slots_) {
      const auto is_owners = [&](const std::shared_ptr<Maker>& maker) { return maker->owner == owner; };
      const auto first = std::stable_partition(slot.makers.begin(), slot.makers.end(), std::not_fn(is_owners));
      std::move(first, slot.makers.end(), std::back_inserter(removed));
      slot.makers.erase(first, slot.makers.end());
    }
  }
  for (const auto& maker : removed) {
    std::unique_lock<std::shared_mutex> lock(maker->mutex);
    maker->removed = true;
  }
}

absl::Status WeightSlots::Make(int slot, const EpochView& view, std::shared_ptr<const void>* object) const {
  for (;;) {
    std::shared_ptr<Maker> maker;
    {
      std::shared_lock<std::shared_mutex> lock(mutex_);
      const auto& makers = slots_[slot].makers;
      if (makers.empty()) return absl::OkStatus();
      maker = makers.front();
    }
    std::shared_lock<std::shared_mutex> lock(maker->mutex);
    if (!maker->removed) return maker->factory(view, object);
  }
}

std::vector<WeightSlots::Needs> WeightSlots::AllNeeds() const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  std::vector<Needs> needs;
  for (const Slot& slot : slots_) needs.push_back(slot.makers.empty() ? Needs() : slot.needs);
  return needs;
}

std::shared_ptr<EpochView> EpochView::InPrecision(const EpochView& view, std::string precision) {
  std::shared_ptr<EpochView> other(new EpochView(view.parts_));
  other->precision_ = std::move(precision);
  other->facts_ = view.facts_;
  other->tables_ = view.tables_;
  other->layout_ = view.layout_;
  other->formulas_ = view.formulas_;
  other->variables_ = view.variables_;
  const std::vector<WeightSlots::Needs> needs = view.parts_->slots->AllNeeds();
  for (size_t i = 0; i < needs.size(); ++i) {
    const int slot = static_cast<int>(i);
    std::shared_ptr<const void> same = needs[i].has_precision ? nullptr : view.MadeWeights(slot);
    if (same != nullptr) other->SetWeights(slot, std::move(same));
  }
  return other;
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

std::shared_ptr<const void> EpochView::MadeWeights(int slot) const {
  std::lock_guard<std::mutex> lock(mutex_);
  const void* const made = weights_[slot].load(std::memory_order_relaxed);
  for (const std::shared_ptr<const void>& owned : owned_weights_) {
    if (made != nullptr && owned.get() == made) return owned;
  }
  return nullptr;
}

absl::Status EpochView::PrepareWeights(const EpochView& before, const std::vector<bool>& changed_formulas) {
  const std::vector<WeightSlots::Needs> needs = parts_->slots->AllNeeds();
  for (size_t i = 0; i < needs.size(); ++i) {
    const int slot = static_cast<int>(i);
    const bool changed = std::any_of(needs[i].formulas.begin(), needs[i].formulas.end(),
                                     [&](int formula) { return changed_formulas[formula]; });
    const bool same_precision = !needs[i].has_precision || before.precision_ == precision_;
    std::shared_ptr<const void> object;
    if (!changed && same_precision) object = before.MadeWeights(slot);
    if (changed || (object == nullptr && needs[i].has_precision && !precision_.empty())) {
      if (absl::Status s = parts_->slots->Make(slot, *this, &object); !s.ok()) return s;
    }
    if (object != nullptr) SetWeights(slot, std::move(object));
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
