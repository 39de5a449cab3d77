// SPDX-License-Identifier: Apache-2.0
// A packed tower together with what its requests share: the teams of threads, and the places of values.
#ifndef PROCESSOR_KERNELS_READY_TOWER_H_
#define PROCESSOR_KERNELS_READY_TOWER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "src/kernels/dense_tower.h"
#include "src/kernels/tower_layout.h"
#include "src/kernels/tower_team.h"

namespace processor {

/// The sessions of a model version share it; a live model has one for each epoch that changes its weights. Any thread may
/// call.
class ReadyTower {
 public:
  /// `team_rows`: the most rows of a member of a team.
  ReadyTower(std::shared_ptr<const DenseTower> tower, int64_t team_rows)
      : tower_(std::move(tower)), teams_(TowerTeams::MembersFor(tower_->bytes()), team_rows) {}

  const DenseTower& tower() const { return *tower_; }
  TowerTeams& teams() const { return teams_; }

  /// Finds the layout for inputs of these widths, or makes it. Most models need one or two: for one row and for more.
  /// `own` keeps it if too many are kept already.
  absl::Status FindLayout(absl::Span<const TowerInput> inputs, int64_t rows, const TowerLayout** layout,
                          std::shared_ptr<const TowerLayout>* own) const;

  /// Makes what requests of one row and of many rows need if the weights tell the widths of all inputs. Otherwise requests
  /// make their layouts, and oneDNN's kernels for their numbers of rows.
  absl::Status PrepareLayouts(int num_inputs) const;

 private:
  static constexpr size_t kMaxLayouts = 8;

  const TowerLayout* FindKept(absl::Span<const TowerInput> inputs, int64_t rows) const;

  const std::shared_ptr<const DenseTower> tower_;
  mutable TowerTeams teams_;
  mutable std::mutex mutex_;
  // Layouts are only added, so that they are found without a lock.
  mutable size_t kept_layouts_ = 0;
  mutable std::array<std::shared_ptr<const TowerLayout>, kMaxLayouts> layouts_;
  mutable std::array<std::atomic<const TowerLayout*>, kMaxLayouts> found_layouts_{};
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_READY_TOWER_H_
