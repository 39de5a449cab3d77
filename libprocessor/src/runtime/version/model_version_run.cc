// SPDX-License-Identifier: Apache-2.0
// Runs requests on a model version; model_version.cc loads it.
#include <algorithm>
#include <iterator>
#include <mutex>
#include <numeric>
#include <optional>

#include "src/runtime/version/model_version.h"
#include "src/runtime/version/timeline.h"

namespace processor {
namespace {

// A client could request every subset of the outputs; each costs a pruned graph in every session.
constexpr int kMaxSubsets = 64;

}  // namespace

std::vector<int> ModelVersion::AllOutputs(const Signature& signature) {
  std::vector<int> all(signature.outputs().size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

int ModelVersion::CallableFor(const Signature& signature, std::vector<int>* outputs) {
  const int index = signatures_.IndexOf(&signature);
  if (outputs->size() == signature.outputs().size()) return index;
  const std::pair<int, std::vector<int>> key(index, *outputs);
  {
    std::shared_lock<std::shared_mutex> lock(subsets_mutex_);
    const auto found = subsets_.find(key);
    if (found != subsets_.end()) return found->second;
  }
  std::unique_lock<std::shared_mutex> lock(subsets_mutex_);
  if (subsets_.size() < kMaxSubsets) {
    const int number = static_cast<int>(signatures_.all().size() + subsets_.size());
    if (number < Session::kMaxCallables) return subsets_.emplace(key, number).first->second;
  }
  *outputs = AllOutputs(signature);
  return index;
}

absl::Status ModelVersion::Run(int session, const DecodedRequest& request, std::vector<tensorflow::Tensor>* outputs,
                               Timeline* timeline) {
  const int64_t step = timeline == nullptr ? -1 : timeline->Next();
  std::optional<tensorflow::StepStats> stats;
  if (step < 0) {
    if (absl::Status s = RunOne(session, request, outputs); !s.ok()) return s;
  } else if (absl::Status s = RunTraced(session, request, outputs, &stats.emplace()); !s.ok()) {
    return s;
  }
  std::vector<tensorflow::Tensor> more;
  for (const DecodedRequest& next : request.next) {
    if (absl::Status s = RunOne(session, next, &more); !s.ok()) return s;
    std::move(more.begin(), more.end(), std::back_inserter(*outputs));
  }
  // Only the first graph is traced, since traces of others would overwrite it.
  if (stats.has_value()) timeline->Write(step, *stats);
  return absl::OkStatus();
}

absl::Status ModelVersion::RunOne(int session, const DecodedRequest& request,
                                  std::vector<tensorflow::Tensor>* outputs) {
  const Signature& signature = *request.signature;
  std::vector<int> wanted = request.fetches;
  std::sort(wanted.begin(), wanted.end());
  const int callable = CallableFor(signature, &wanted);
  Session& runner = *sessions_[session];
  Session::Handle handle;
  if (absl::Status s = runner.Prepare(callable, signature, wanted, &handle); !s.ok()) return s;
  if (absl::Status s = runner.Run(handle, request.feeds, outputs); !s.ok()) return s;
  if (wanted == request.fetches) return absl::OkStatus();
  // The outputs were requested in another order, or the run returned all of them.
  std::vector<tensorflow::Tensor> ordered;
  ordered.reserve(request.fetches.size());
  for (int fetch : request.fetches) {
    const size_t at = std::lower_bound(wanted.begin(), wanted.end(), fetch) - wanted.begin();
    ordered.push_back((*outputs)[at]);
  }
  outputs->swap(ordered);
  return absl::OkStatus();
}

absl::Status ModelVersion::RunTraced(int session, const DecodedRequest& request,
                                     std::vector<tensorflow::Tensor>* outputs, tensorflow::StepStats* stats) {
  std::vector<tensorflow::Tensor> all;
  if (absl::Status s = sessions_[session]->RunTraced(*request.signature, request.feeds, &all, stats); !s.ok()) return s;
  outputs->clear();
  for (int fetch : request.fetches) outputs->push_back(all[fetch]);
  return absl::OkStatus();
}

}  // namespace processor
