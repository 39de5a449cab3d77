// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/follow/precision_trial.h"

#include <time.h>

#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/codec/protocols.h"
#include "src/runtime/version/recorded_requests.h"
#include "tensorflow/core/framework/tensor.h"

namespace processor {
namespace {

using tensorflow::Tensor;

// As in graph_tools/verification/evidence.py.
constexpr size_t kLeastRequests = 8;
constexpr int64_t kLeastRows = 32;
// More would cost time, and memory for their outputs.
constexpr size_t kMostRequests = 256;
constexpr size_t kMostBytes = size_t{16} << 20;

struct Answer {
  const Signature* signature = nullptr;
  std::vector<int> fetches;
  std::vector<Tensor> outputs;

  int64_t rows() const {
    for (const Tensor& output : outputs) {
      if (output.dims() > 0) return output.dim_size(0);
    }
    return 1;
  }
};

double ThreadCpuMs() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
}

absl::Status ReadRequests(const std::string& path, std::vector<std::string>* requests) {
  size_t bytes = 0;
  const auto add = [&](std::string_view request) {
    bytes += request.size();
    if (requests->size() < kMostRequests && bytes <= kMostBytes) requests->emplace_back(request);
    return absl::OkStatus();
  };
  RecordCounts unused;
  return ReadRecordedRequests(path, add, &unused);
}

// `requests` must outlive the answers, whose tensors may be theirs.
absl::Status AnswerAll(ModelVersion& version, const PinnedEpoch& epoch, const std::vector<std::string>& requests,
                       std::vector<Answer>* answers) {
  for (const std::string& bytes : requests) {
    DecodedRequest request;
    Answer answer;
    absl::Status status = TfServingCodec()->Decode(bytes, version.signatures(), {}, &request);
    if (status.ok()) status = version.Run(/*session=*/0, request, epoch, &answer.outputs);
    if (!status.ok()) {
      return absl::Status(status.code(), absl::StrCat("recorded request ", answers->size(), ": ", status.message()));
    }
    answer.signature = request.signature;
    answer.fetches = request.fetches;
    answers->push_back(std::move(answer));
  }
  return absl::OkStatus();
}

// Leaves the answers of signatures with enough requests, and counts them.
absl::Status KeepEvidence(std::vector<Answer>* answers, TrialOutcome* outcome) {
  struct Count {
    size_t requests = 0;
    int64_t rows = 0;
    bool enough() const { return requests >= kLeastRequests || rows >= kLeastRows; }
  };
  std::map<const Signature*, Count> counts;
  for (const Answer& answer : *answers) {
    ++counts[answer.signature].requests;
    counts[answer.signature].rows += answer.rows();
  }
  Count all;
  for (const auto& [signature, count] : counts) {
    all.requests += count.requests;
    all.rows += count.rows;
    if (!count.enough()) continue;
    outcome->requests += count.requests;
    outcome->rows += count.rows;
  }
  if (outcome->requests == 0) {
    return absl::FailedPreconditionError(absl::StrCat(all.requests, " recorded requests with ", all.rows,
                                                      " rows, expected ", kLeastRequests, " requests or ", kLeastRows,
                                                      " rows of a signature"));
  }
  for (Answer& answer : *answers) {
    if (!counts[answer.signature].enough()) answer.outputs.clear();
  }
  return absl::OkStatus();
}

PrecisionLoss Compare(const std::vector<Answer>& exact, const std::vector<Answer>& other,
                      const PermittedPrecision& precision) {
  PrecisionComparison comparison;
  for (size_t i = 0; i < exact.size(); ++i) {
    const Answer& answer = exact[i];
    for (size_t j = 0; j < answer.outputs.size(); ++j) {
      const std::string& alias = answer.signature->outputs()[answer.fetches[j]].alias;
      comparison.Add(absl::StrCat("signature '", answer.signature->name(), "', output '", alias, "'"),
                     answer.outputs[j], other[i].outputs[j]);
    }
  }
  return comparison.Judge(precision.name, precision.limit);
}

}  // namespace

absl::Status MakeTrial(std::shared_ptr<ModelVersion> version, const PinnedEpoch& epoch,
                       std::vector<PermittedPrecision> permitted, PrecisionTrial* trial) {
  trial->exact = epoch;
  if (absl::Status s = LiveModel::InPrecision(epoch.view, "fp32", &trial->exact.view); !s.ok()) return s;
  for (const PermittedPrecision& precision : permitted) {
    PinnedEpoch& view = trial->views.emplace_back(epoch);
    if (absl::Status s = LiveModel::InPrecision(epoch.view, precision.attribute, &view.view); !s.ok()) return s;
  }
  trial->permitted = std::move(permitted);
  trial->version = std::move(version);
  return absl::OkStatus();
}

absl::Status RunTrial(PrecisionTrial trial, TrialOutcome* outcome) {
  const double begin_ms = ThreadCpuMs();
  std::vector<std::string> requests;
  if (absl::Status s = ReadRequests(trial.version->records, &requests); !s.ok()) return s;
  std::vector<Answer> exact;
  if (absl::Status s = AnswerAll(*trial.version, trial.exact, requests, &exact); !s.ok()) return s;
  if (absl::Status s = KeepEvidence(&exact, outcome); !s.ok()) return s;
  trial.exact = PinnedEpoch();  // gives back its weights
  for (size_t i = 0; i < trial.views.size() && !outcome->any_passed(); ++i) {
    std::vector<Answer> other;
    if (absl::Status s = AnswerAll(*trial.version, trial.views[i], requests, &other); !s.ok()) return s;
    trial.views[i] = PinnedEpoch();
    outcome->losses.push_back(Compare(exact, other, trial.permitted[i]));
  }
  outcome->cpu_ms = ThreadCpuMs() - begin_ms;
  return absl::OkStatus();
}

}  // namespace processor
