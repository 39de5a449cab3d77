// SPDX-License-Identifier: Apache-2.0
#include "src/host/control/load_lanes.h"

#include <utility>

#include "src/runtime/requests/exception_status.h"

namespace processor {

LoadLanes::LoadLanes(std::string verified_files, std::function<void()> wake)
    : files_(std::move(verified_files)), maintenance_(std::move(wake), /*lanes=*/1 + kLastLane) {}

absl::Status LoadLanes::StartLoad(int lane, const CpuSet& cpus, uint64_t instance, const DesiredVersion& wanted,
                                  int64_t number, HostedPlace place, std::shared_ptr<LoadProgress> progress) {
  return maintenance_.Start(
      cpus,
      [this, instance, wanted, number, place = std::move(place), progress = std::move(progress)] {
        JobEnd end{instance, /*load=*/true, {}, nullptr};
        end.status = Attempt([&] { return Load(wanted, number, place, progress, &end.version); });
        Finish(std::move(end));
      },
      lane);
}

absl::Status LoadLanes::StartUnload(const CpuSet& cpus, uint64_t instance, std::shared_ptr<HostedVersion>* version) {
  // A job is copied before it runs, and must not copy the reference, which has to remain the only one.
  auto* const last = new std::shared_ptr<HostedVersion>(std::move(*version));
  const absl::Status status = maintenance_.Start(
      cpus,
      [this, instance, last] {
        delete last;
        Finish({instance, /*load=*/false, absl::OkStatus(), nullptr});
      },
      kUnloadLane);
  if (!status.ok()) {
    *version = std::move(*last);
    delete last;
  }
  return status;
}

std::vector<JobEnd> LoadLanes::TakeEnds() {
  std::vector<JobEnd> ends;
  std::lock_guard<std::mutex> lock(mutex_);
  ends.swap(ends_);
  return ends;
}

absl::Status LoadLanes::Load(const DesiredVersion& wanted, int64_t number, const HostedPlace& place,
                             const std::shared_ptr<LoadProgress>& progress, std::unique_ptr<HostedVersion>* version) {
  std::string folder, seal;
  if (absl::Status s = ResolvePath(wanted.path, &folder); !s.ok()) return s;
  const auto give_up = [&progress] { return progress->cancellation.requested(); };
  if (absl::Status s = files_.Check(folder, wanted.files, give_up, &seal); !s.ok()) return s;
  if (absl::Status s = HostedVersion::Load(wanted, number, place, progress, version); !s.ok()) return s;
  absl::Status status = FileChecker::Unchanged(folder, seal);
  if (!status.ok()) version->reset();
  return status;
}

void LoadLanes::Finish(JobEnd end) {
  std::lock_guard<std::mutex> lock(mutex_);
  ends_.push_back(std::move(end));
}

}  // namespace processor
