// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/live_weights.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace processor {

using tensorflow::Tensor;

void LiveWeights::Forget() {
  for (const auto& known : all_known_) known->slots->Remove(this);
}

absl::Status LiveWeights::Read(tensorflow::OpKernelConstruction* context, size_t first, size_t count,
                               bool has_precision, Make make) {
  int views = 0;
  if (absl::Status s = context->GetAttr("num_views", &views); !s.ok()) return s;
  if (absl::Status s = context->GetAttr("formulas", &formulas_); !s.ok()) return s;
  if (views > 1) return absl::InvalidArgumentError(absl::StrCat("view: ", views, " of them, expected at most one"));
  if (!formulas_.empty() && (views == 0 || formulas_.size() != count)) {
    return absl::InvalidArgumentError(
        absl::StrCat("formulas: ", formulas_.size(), ", expected none or, with a view, ", count));
  }
  has_precision_ = has_precision;
  has_view_ = !formulas_.empty();
  first_ = first;
  count_ = count;
  node_ = context->def().name();
  make_ = std::move(make);
  return absl::OkStatus();
}

absl::Status LiveWeights::Find(tensorflow::OpKernelContext* context, uint64_t print, const void** object) {
  *object = nullptr;
  if (!has_view_) return absl::OkStatus();
  const EpochView* view = nullptr;
  if (absl::Status s = ReadViewTensor(context->input(context->num_inputs() - 1), &view); !s.ok()) return s;
  const Known* known = known_.load(std::memory_order_acquire);
  if (known == nullptr || known->slots != view->parts().slots) {
    if (absl::Status s = Learn(context, *view, print, &known); !s.ok()) return s;
  }
  const auto changed = [&](int formula) { return formula >= 0 && view->formula(formula) != nullptr; };
  const bool as_inputs = std::none_of(known->formulas.begin(), known->formulas.end(), changed);
  if (as_inputs && (!has_precision_ || view->precision().empty())) return absl::OkStatus();
  if (absl::Status s = view->Weights(known->slot, object); !s.ok()) {
    return absl::Status(s.code(), absl::StrCat("node '", node_, "': ", s.message()));
  }
  return absl::OkStatus();
}

absl::Status LiveWeights::Learn(tensorflow::OpKernelContext* context, const EpochView& view, uint64_t print,
                                const Known** known) {
  std::lock_guard<std::mutex> lock(mutex_);
  *known = known_.load(std::memory_order_relaxed);
  if (*known != nullptr && (*known)->slots == view.parts().slots) return absl::OkStatus();
  auto made = std::make_unique<Known>();
  made->slots = view.parts().slots;
  std::vector<int> used;
  std::vector<Tensor> inputs;
  for (size_t i = 0; i < count_; ++i) {
    made->formulas.push_back(formulas_[i].empty() ? -1 : view.parts().description.FormulaOf(formulas_[i]));
    if (made->formulas.back() >= 0) {
      used.push_back(made->formulas.back());
    } else if (!formulas_[i].empty()) {
      return absl::InvalidArgumentError(absl::StrCat("node '", node_, "': formula '", formulas_[i], "' of weight ", i,
                                                     ", expected one of live.json"));
    }
    inputs.push_back(context->input(static_cast<int>(first_ + i)));
  }
  const auto make = [this, inputs, formulas = made->formulas](const EpochView& of,
                                                              std::shared_ptr<const void>* object) {
    Weights weights;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const Tensor* const changed = formulas[i] < 0 ? nullptr : of.formula(formulas[i]);
      weights.push_back(changed == nullptr ? &inputs[i] : changed);
      if (weights.back()->shape() == inputs[i].shape()) continue;
      return absl::InvalidArgumentError(absl::StrCat("node '", node_, "': formula '", formulas_[i], "' has shape ",
                                                     weights.back()->shape().DebugString(), ", expected ",
                                                     inputs[i].shape().DebugString()));
    }
    return make_(weights, of.precision(), object);
  };
  const std::string key = absl::StrCat(node_, "/", absl::Hex(print), "/", absl::StrJoin(formulas_, "/"));
  all_known_.reserve(all_known_.size() + 1);
  if (absl::Status s = made->slots->Add(key, {std::move(used), has_precision_}, make, this, &made->slot); !s.ok())
    return s;
  *known = made.get();
  all_known_.push_back(std::move(made));
  known_.store(*known, std::memory_order_release);
  return absl::OkStatus();
}

}  // namespace processor
