// SPDX-License-Identifier: Apache-2.0
// Runs requests on a model version; model_version.cc loads it.
#include <algorithm>
#include <iterator>
#include <numeric>
#include <optional>

#include "src/runtime/version/model_version.h"
#include "src/runtime/version/timeline.h"

namespace processor {
namespace {

// Turns outputs of some positions (ascending) into those of `wanted`, which must be among them.
void Arrange(absl::Span<const int> positions, absl::Span<const int> wanted, std::vector<tensorflow::Tensor>* outputs) {
  std::vector<tensorflow::Tensor> arranged;
  arranged.reserve(wanted.size());
  for (int output : wanted) {
    const auto found = std::lower_bound(positions.begin(), positions.end(), output);
    arranged.push_back((*outputs)[found - positions.begin()]);
  }
  outputs->swap(arranged);
}

}  // namespace

std::vector<int> ModelVersion::AllOutputs(const Signature& signature) {
  std::vector<int> all(signature.outputs().size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

PinnedEpoch ModelVersion::Pin() const {
  PinnedEpoch pinned;
  if (live_ == nullptr) return pinned;
  pinned.view = live_->Pin();
  const EpochView* view = nullptr;
  if (!ReadViewTensor(pinned.view, &view).ok()) return pinned;
  const EpochFacts& facts = view->facts();
  pinned.epoch = static_cast<int64_t>(facts.epoch);
  pinned.knows_us = facts.knows_us();
  return pinned;
}

std::shared_ptr<EarlyRows> ModelVersion::RowsToRead(const DecodedRequest& request) const {
  if (early_ == nullptr) return nullptr;
  const PinnedEpoch pinned = Pin();
  const EpochView* view = nullptr;
  if (pinned.tensor() != nullptr && !ReadViewTensor(pinned.view, &view).ok()) return nullptr;
  return early_->RowsOf(request, view);
}

absl::Status ModelVersion::Run(int session, const DecodedRequest& request, const PinnedEpoch& epoch,
                               std::vector<tensorflow::Tensor>* outputs, Timeline* timeline) {
  const int64_t step = timeline == nullptr ? -1 : timeline->Next();
  std::optional<tensorflow::StepStats> stats;
  if (step < 0) {
    if (absl::Status s = RunOne(session, request, epoch, outputs); !s.ok()) return s;
  } else if (absl::Status s = RunTraced(session, request, epoch, outputs, &stats.emplace()); !s.ok()) {
    return s;
  }
  std::vector<tensorflow::Tensor> more;
  for (const DecodedRequest& next : request.next) {
    if (absl::Status s = RunOne(session, next, epoch, &more); !s.ok()) return s;
    std::move(more.begin(), more.end(), std::back_inserter(*outputs));
  }
  // Only the first graph is traced, since traces of others would overwrite it.
  if (stats.has_value()) timeline->Write(step, *stats);
  return absl::OkStatus();
}

absl::Status ModelVersion::RunCallable(Session& session, int callable, const DecodedRequest& request,
                                       const PinnedEpoch& epoch, absl::Span<const int> wanted,
                                       std::vector<tensorflow::Tensor>* outputs) {
  Session::Handle handle;
  if (absl::Status s = session.Prepare(callable, *request.signature, wanted, &handle); !s.ok()) return s;
  return session.Run(handle, request.feeds, epoch.tensor(), outputs);
}

absl::Status ModelVersion::RunSubset(Session& session, const DecodedRequest& request, const PinnedEpoch& epoch,
                                     absl::Span<const int> wanted, std::vector<tensorflow::Tensor>* outputs) {
  const int signature = signatures_.IndexOf(request.signature);
  int callable = subsets_->Find(signature, wanted);
  // Other outputs may change the state of the model.
  if (callable < 0 && writes_state_) subsets_->MakeNow(signature, wanted, &callable).IgnoreError();
  if (callable >= 0) return RunCallable(session, callable, request, epoch, wanted, outputs);

  const std::vector<int> all = AllOutputs(*request.signature);
  const absl::Status status = RunCallable(session, signature, request, epoch, all, outputs);
  if (status.ok()) {
    Arrange(all, wanted, outputs);
    return status;
  }
  const Cancellation* const cancellation = Cancellation::Current();
  if (cancellation != nullptr && cancellation->requested()) return status;
  // What has failed may be an output that the request does not want.
  if (!subsets_->MakeNow(signature, wanted, &callable).ok()) return status;
  return RunCallable(session, callable, request, epoch, wanted, outputs);
}

absl::Status ModelVersion::RunOne(int session, const DecodedRequest& request, const PinnedEpoch& epoch,
                                  std::vector<tensorflow::Tensor>* outputs) {
  Session& runner = *sessions_[session];
  const std::vector<int>& fetches = request.fetches;
  const bool all = fetches.size() == request.signature->outputs().size();
  const auto run = [&](absl::Span<const int> wanted) {
    if (!all) return RunSubset(runner, request, epoch, wanted, outputs);
    return RunCallable(runner, signatures_.IndexOf(request.signature), request, epoch, wanted, outputs);
  };
  if (std::is_sorted(fetches.begin(), fetches.end())) return run(fetches);
  std::vector<int> sorted = fetches;
  std::sort(sorted.begin(), sorted.end());
  if (absl::Status s = run(sorted); !s.ok()) return s;
  Arrange(sorted, fetches, outputs);
  return absl::OkStatus();
}

absl::Status ModelVersion::RunTraced(int session, const DecodedRequest& request, const PinnedEpoch& epoch,
                                     std::vector<tensorflow::Tensor>* outputs, tensorflow::StepStats* stats) {
  std::vector<tensorflow::Tensor> all;
  if (absl::Status s = sessions_[session]->RunTraced(*request.signature, request.feeds, epoch.tensor(), &all, stats);
      !s.ok()) {
    return s;
  }
  outputs->clear();
  for (int fetch : request.fetches) outputs->push_back(all[fetch]);
  return absl::OkStatus();
}

}  // namespace processor
