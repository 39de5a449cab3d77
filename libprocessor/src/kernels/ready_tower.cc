// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/ready_tower.h"

#include <algorithm>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "src/kernels/tower_run.h"

namespace processor {

absl::Status ReadyTower::PrepareLayouts(int num_inputs) const {
  const TowerPlan& plan = tower_->plan();
  std::vector<int64_t> widths(static_cast<size_t>(num_inputs));
  for (size_t i = 0; i < plan.layers.size(); ++i) {
    for (size_t j = 0; j < tower_->dense(i).products.size(); ++j) {
      const TowerValue& value = plan.layers[i].inputs[j];
      if (!value.is_layer) widths[static_cast<size_t>(value.number)] = tower_->dense(i).products[j].shape.k;
    }
  }
  if (std::find(widths.begin(), widths.end(), 0) != widths.end()) return absl::OkStatus();
  for (int64_t rows : {int64_t{1}, OnednnMatmul::kMaxRows}) {
    absl::InlinedVector<TowerInput, 8> inputs;
    for (int64_t width : widths) inputs.push_back({nullptr, rows, width});
    const TowerLayout* layout = nullptr;
    std::shared_ptr<const TowerLayout> own_layout;
    if (absl::Status s = FindLayout(inputs, rows, &layout, &own_layout); !s.ok()) return s;
    if (absl::Status s = TowerRun::PrepareKernels(*layout); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status ReadyTower::FindLayout(absl::Span<const TowerInput> inputs, int64_t rows, const TowerLayout** layout,
                                    std::shared_ptr<const TowerLayout>* own) const {
  if ((*layout = FindKept(inputs, rows)) != nullptr) return absl::OkStatus();
  std::lock_guard<std::mutex> lock(mutex_);
  if ((*layout = FindKept(inputs, rows)) != nullptr) return absl::OkStatus();
  if (absl::Status s = TowerLayout::Create(tower_, inputs, rows, own); !s.ok()) return s;
  *layout = own->get();
  if (kept_layouts_ == kMaxLayouts) return absl::OkStatus();
  layouts_[kept_layouts_] = *own;
  found_layouts_[kept_layouts_++].store(*layout, std::memory_order_release);
  return absl::OkStatus();
}

const TowerLayout* ReadyTower::FindKept(absl::Span<const TowerInput> inputs, int64_t rows) const {
  for (const std::atomic<const TowerLayout*>& kept : found_layouts_) {
    const TowerLayout* layout = kept.load(std::memory_order_acquire);
    if (layout == nullptr || layout->Fits(inputs, rows)) return layout;
  }
  return nullptr;
}

}  // namespace processor
