// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/batching/batch_run.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <string>

#include "src/codec/feed_arena.h"
#include "src/runtime/requests/exception_status.h"

namespace processor {
namespace {

using tensorflow::Tensor;
using tensorflow::tstring;

// Returns the size of an element in memory; 0 for types that cannot be copied as bytes.
size_t ElementBytes(tensorflow::DataType dtype) {
  if (dtype == tensorflow::DT_STRING) return sizeof(tstring);
  return tensorflow::DataTypeCanUseMemcpy(dtype) ? static_cast<size_t>(tensorflow::DataTypeSize(dtype)) : 0;
}

int64_t ElementsPerRow(const Tensor& tensor) {
  int64_t count = 1;
  for (int i = 1; i < tensor.dims(); ++i) count *= tensor.dim_size(i);
  return count;
}

bool SameButRows(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.dims() != b.dims()) return false;
  for (int i = 1; i < a.dims(); ++i) {
    if (a.dim_size(i) != b.dim_size(i)) return false;
  }
  return true;
}

uint64_t MixInto(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
  return hash ^ (hash >> 29);
}

absl::Status MakeJointTensor(FeedArena* arena, const Tensor& like, int64_t rows, Tensor* dst) {
  tensorflow::TensorShape shape = like.shape();
  if (absl::Status s = shape.SetDimWithStatus(0, rows); !s.ok()) return s;
  return arena->Make(like.dtype(), shape, ElementBytes(like.dtype()), dst);
}

// Concatenates input `index` of all requests along the rows. The bytes of strings are not copied.
absl::Status ConcatenateInput(const std::vector<JointRequest>& requests, size_t index, int64_t rows, FeedArena* arena,
                              Tensor* dst) {
  const Tensor& model = requests.front().request->feeds[index];
  if (absl::Status s = MakeJointTensor(arena, model, rows, dst); !s.ok()) return s;
  const size_t element = ElementBytes(model.dtype());
  char* to = static_cast<char*>(dst->data());
  for (const JointRequest& request : requests) {
    const Tensor& src = request.request->feeds[index];
    const auto count = static_cast<size_t>(src.NumElements());
    if (count == 0) continue;
    if (model.dtype() == tensorflow::DT_STRING) {
      const auto* from = static_cast<const tstring*>(src.data());
      for (size_t i = 0; i < count; ++i)
        reinterpret_cast<tstring*>(to)[i].assign_as_view(from[i].data(), from[i].size());
    } else {
      std::memcpy(to, src.data(), count * element);
    }
    to += count * element;
  }
  return absl::OkStatus();
}

absl::Status Concatenate(const std::vector<JointRequest>& requests, int64_t rows, DecodedRequest* joint) {
  const DecodedRequest& first = *requests.front().request;
  joint->signature = first.signature;
  joint->fetches = first.fetches;
  joint->feeds.resize(first.feeds.size());
  FeedArena arena;
  for (size_t i = 0; i < first.feeds.size(); ++i) {
    if (absl::Status s = ConcatenateInput(requests, i, rows, &arena, &joint->feeds[i]); !s.ok()) return s;
  }
  return absl::OkStatus();
}

bool HaveRows(const std::vector<Tensor>& outputs, int64_t rows) {
  return std::all_of(outputs.begin(), outputs.end(), [rows](const Tensor& output) {
    return output.dims() > 0 && output.dim_size(0) == rows && ElementBytes(output.dtype()) > 0;
  });
}

// Copies rows from `begin` on, so that a client that keeps its response does not keep those of others.
absl::Status CutRows(const Tensor& src, int64_t begin, int64_t rows, FeedArena* arena, Tensor* dst) {
  if (absl::Status s = MakeJointTensor(arena, src, rows, dst); !s.ok()) return s;
  const int64_t per_row = ElementsPerRow(src), count = rows * per_row;
  if (count == 0) return absl::OkStatus();
  if (src.dtype() == tensorflow::DT_STRING) {
    const auto* from = static_cast<const tstring*>(src.data()) + begin * per_row;
    auto* to = static_cast<tstring*>(dst->data());
    // Assigning a tstring would keep views of inputs, which end before the response.
    for (int64_t i = 0; i < count; ++i) to[i].assign(from[i].data(), from[i].size());
  } else {
    const size_t element = ElementBytes(src.dtype());
    const char* from = static_cast<const char*>(src.data()) + static_cast<size_t>(begin * per_row) * element;
    std::memcpy(dst->data(), from, static_cast<size_t>(count) * element);
  }
  return absl::OkStatus();
}

// `parts` [requests][outputs]
absl::Status SplitOutputs(const std::vector<Tensor>& outputs, const std::vector<JointRequest>& requests,
                          std::vector<std::vector<Tensor>>* parts) {
  FeedArena arena;
  parts->resize(requests.size());
  int64_t begin = 0;
  for (size_t r = 0; r < requests.size(); ++r) {
    (*parts)[r].resize(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (absl::Status s = CutRows(outputs[i], begin, requests[r].rows, &arena, &(*parts)[r][i]); !s.ok()) return s;
    }
    begin += requests[r].rows;
  }
  return absl::OkStatus();
}

// `alone`, `joint` [requests][outputs]. Requests that failed alone are not compared.
bool AllAgree(const std::vector<JointRequest>& alone, const std::vector<std::vector<Tensor>>& joint,
              const Tolerance& tolerance) {
  for (size_t i = 0; i < joint.front().size(); ++i) {
    double largest = 0;
    for (const JointRequest& request : alone) {
      if (request.status.ok()) largest = std::max(largest, LargestOf(request.outputs[i]));
    }
    for (size_t r = 0; r < alone.size(); ++r) {
      if (alone[r].status.ok() && !Agree(joint[r][i], alone[r].outputs[i], tolerance, largest)) return false;
    }
  }
  return true;
}

bool AreCopies(const std::vector<JointRequest>& requests) {
  return std::all_of(requests.begin() + 1, requests.end(), [&](const JointRequest& request) {
    return Same(request.request->feeds, requests.front().request->feeds);
  });
}

OutputRows::Likeness LikenessOf(const std::vector<JointRequest>& requests) {
  if (AreCopies(requests)) return OutputRows::Likeness::kCopies;
  const bool same = std::all_of(requests.begin() + 1, requests.end(), [&](const JointRequest& request) {
    return request.rows == requests.front().rows && Same(request.outputs, requests.front().outputs);
  });
  return same ? OutputRows::Likeness::kSameAnswers : OutputRows::Likeness::kDifferent;
}

void RunOneByOne(const RunRequest& run, std::vector<JointRequest>* requests) {
  for (JointRequest& request : *requests) {
    request.outputs.clear();
    request.status = Attempt([&] { return run(*request.request, &request.outputs); });
  }
}

bool AllRan(const std::vector<JointRequest>& requests) {
  return std::all_of(requests.begin(), requests.end(), [](const JointRequest& request) { return request.status.ok(); });
}

// Runs all requests as one and splits the outputs. `follow`: the first dimensions of the outputs are the rows.
absl::Status RunJoint(const RunRequest& run, const std::vector<JointRequest>& requests,
                      std::vector<std::vector<Tensor>>* parts, bool* follow) {
  int64_t rows = 0;
  for (const JointRequest& request : requests) rows += request.rows;
  DecodedRequest joint;
  std::vector<Tensor> outputs;
  if (absl::Status s = Concatenate(requests, rows, &joint); !s.ok()) return s;
  if (absl::Status s = run(joint, &outputs); !s.ok()) return s;
  *follow = HaveRows(outputs, rows);
  return *follow ? SplitOutputs(outputs, requests, parts) : absl::OkStatus();
}

// Runs requests one by one, for their responses, and batched in two orders, and records whether both agree.
void Try(const RunRequest& run, std::vector<JointRequest>* requests, OutputRows* known) {
  std::vector<std::vector<Tensor>> parts, reversed_parts;
  bool follow = false;
  absl::Status joint = Attempt([&] { return RunJoint(run, *requests, &parts, &follow); });
  if (joint.ok() && follow) {
    // In the reverse order, each request has other neighbors and another position.
    std::vector<JointRequest> reversed;
    for (auto request = requests->rbegin(); request != requests->rend(); ++request)
      reversed.push_back({request->request, request->rows, {}, {}});
    joint = Attempt([&] { return RunJoint(run, reversed, &reversed_parts, &follow); });
    std::reverse(reversed_parts.begin(), reversed_parts.end());
  }
  RunOneByOne(run, requests);
  const bool all_ran = AllRan(*requests);
  // A joint failure counts only if every request alone succeeded, and not if memory was short.
  if (!joint.ok() && (absl::IsResourceExhausted(joint) || !all_ran)) return;
  const DecodedRequest& first = *requests->front().request;
  // The responses are complete; if the result of the trial cannot be stored, a later trial finds it again.
  Attempt([&] {
    const bool agree = joint.ok() && follow && AllAgree(*requests, parts, known->tolerance()) &&
                       AllAgree(*requests, reversed_parts, known->tolerance());
    if (!agree || all_ran) known->Tried(first, agree, agree ? LikenessOf(*requests) : OutputRows::Likeness::kCopies);
    return absl::OkStatus();
  }).IgnoreError();
}

// Runs one of the batched requests alone, and records whether its outputs are the same.
void Check(const RunRequest& run, const std::vector<JointRequest>& requests, OutputRows* known) {
  static std::atomic<size_t> turn{0};
  const JointRequest& checked = requests[turn.fetch_add(1, std::memory_order_relaxed) % requests.size()];
  std::vector<Tensor> alone;
  // A run that fails, perhaps for lack of memory, says nothing about rows.
  if (!Attempt([&] { return run(*checked.request, &alone); }).ok()) return;
  std::string differs;
  for (size_t i = 0; i < alone.size() && differs.empty(); ++i) {
    // If the graph proves independence, rounding alone may change a choice (such as the best of a list).
    const bool is_choice = !tensorflow::DataTypeIsFloating(alone[i].dtype()) && known->IsProved(*checked.request);
    if (is_choice && alone[i].shape() == checked.outputs[i].shape()) continue;
    if (Agree(checked.outputs[i], alone[i], known->tolerance(), LargestOf(alone[i]))) continue;
    differs = checked.request->signature->outputs()[static_cast<size_t>(checked.request->fetches[i])].alias;
  }
  known->Checked(*checked.request, differs);
}

JointOutcome RunAll(const RunRequest& run, OutputRows* known, std::vector<JointRequest>* requests) {
  const DecodedRequest& first = *requests->front().request;
  const bool same = std::all_of(requests->begin(), requests->end(), [&](const JointRequest& request) {
    return request.rows > 0 && SameKind(first, *request.request);
  });
  if (requests->size() == 1 || !same) {
    RunOneByOne(run, requests);
    return {};
  }
  const OutputRows::Plan plan = known->Ask(first, [&] { return AreCopies(*requests); });
  if (plan == OutputRows::Plan::kAlone) {
    RunOneByOne(run, requests);
    return {};
  }
  if (plan == OutputRows::Plan::kTry) {
    Try(run, requests, known);
    return {/*together=*/false, /*repeated=*/true};
  }
  std::vector<std::vector<Tensor>> parts;
  bool follow = false;
  const absl::Status joint = Attempt([&] { return RunJoint(run, *requests, &parts, &follow); });
  if (!joint.ok() || !follow) {
    RunOneByOne(run, requests);
    if (joint.ok()) Attempt([&] { return known->Tried(first, false, {}), absl::OkStatus(); }).IgnoreError();
    return {/*together=*/false, /*repeated=*/true};
  }
  for (size_t r = 0; r < requests->size(); ++r) {
    (*requests)[r].outputs = std::move(parts[r]);
    (*requests)[r].status = absl::OkStatus();
  }
  if (plan == OutputRows::Plan::kCheck) {
    Attempt([&] { return Check(run, *requests, known), absl::OkStatus(); }).IgnoreError();
  }
  return {/*together=*/true, /*repeated=*/false};
}

}  // namespace

int64_t RowsOf(const DecodedRequest& request) {
  if (!request.next.empty()) return 0;
  int64_t rows = 0;
  const std::vector<TensorSpec>& specs = request.signature->inputs();
  for (size_t i = 0; i < request.feeds.size(); ++i) {
    const Tensor& feed = request.feeds[i];
    if (feed.dims() == 0 || ElementBytes(feed.dtype()) == 0) return 0;
    if (i == 0) rows = feed.dim_size(0);
    const tensorflow::PartialTensorShape& shape = specs[i].shape;
    const bool fixed = !shape.unknown_rank() && shape.dims() > 0 && shape.dim_size(0) >= 0;
    if (feed.dim_size(0) != rows || fixed) return 0;
  }
  return rows;
}

bool SameKind(const DecodedRequest& a, const DecodedRequest& b) {
  return a.signature == b.signature && a.fetches == b.fetches && a.feeds.size() == b.feeds.size() &&
         std::equal(a.feeds.begin(), a.feeds.end(), b.feeds.begin(), SameButRows);
}

uint64_t KindOf(const DecodedRequest& request) {
  uint64_t hash = MixInto(0, reinterpret_cast<uintptr_t>(request.signature));
  for (const int fetch : request.fetches) hash = MixInto(hash, static_cast<uint64_t>(fetch));
  for (const Tensor& feed : request.feeds) {
    hash = MixInto(hash, static_cast<uint64_t>(feed.dims()));
    for (int i = 1; i < feed.dims(); ++i) hash = MixInto(hash, static_cast<uint64_t>(feed.dim_size(i)));
  }
  return hash;
}

JointOutcome RunTogether(const RunRequest& run, OutputRows* known, std::vector<JointRequest>* requests) noexcept {
  JointOutcome outcome;
  const absl::Status status = Attempt([&] {
    outcome = RunAll(run, known, requests);
    return absl::OkStatus();
  });
  if (!status.ok()) {
    for (JointRequest& request : *requests) request.status = status;
  }
  return outcome;
}

}  // namespace processor
