// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/batch_run.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <mutex>

#include "absl/strings/str_cat.h"
#include "src/codec/feed_arena.h"
#include "src/runtime/exception_status.h"
#include "src/runtime/log.h"

namespace processor {
namespace {

using tensorflow::Tensor;
using tensorflow::tstring;

// Products over other numbers of rows are summed in another order; in bf16 that shows in the third digit.
constexpr double kRelative = 1e-2, kAbsolute = 1e-3;

// 0 for what is no plain memory.
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

absl::Status MakeTensor(FeedArena* arena, const Tensor& like, int64_t rows, Tensor* dst) {
  tensorflow::TensorShape shape = like.shape();
  if (absl::Status s = shape.SetDimWithStatus(0, rows); !s.ok()) return s;
  return arena->Make(like.dtype(), shape, ElementBytes(like.dtype()), dst);
}

// Input `index` of all requests, one below the other. The memory of strings stays where it is.
absl::Status ConcatenateInput(const std::vector<JointRequest>& requests, size_t index, int64_t rows, FeedArena* arena,
                              Tensor* dst) {
  const Tensor& model = requests.front().request->feeds[index];
  if (absl::Status s = MakeTensor(arena, model, rows, dst); !s.ok()) return s;
  const size_t element = ElementBytes(model.dtype());
  char* to = static_cast<char*>(dst->data());
  for (const JointRequest& one : requests) {
    const Tensor& src = one.request->feeds[index];
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

// Rows from `begin` on, in memory of their own: a client that keeps an answer keeps nobody else's.
absl::Status CutRows(const Tensor& src, int64_t begin, int64_t rows, FeedArena* arena, Tensor* dst) {
  if (absl::Status s = MakeTensor(arena, src, rows, dst); !s.ok()) return s;
  const int64_t per_row = ElementsPerRow(src), count = rows * per_row;
  if (count == 0) return absl::OkStatus();
  if (src.dtype() == tensorflow::DT_STRING) {
    const auto* from = static_cast<const tstring*>(src.data()) + begin * per_row;
    auto* to = static_cast<tstring*>(dst->data());
    // Assigning a tstring would keep views of inputs, which end before the answer does.
    for (int64_t i = 0; i < count; ++i) to[i].assign(from[i].data(), from[i].size());
  } else {
    const size_t element = ElementBytes(src.dtype());
    const char* from = static_cast<const char*>(src.data()) + static_cast<size_t>(begin * per_row) * element;
    std::memcpy(dst->data(), from, static_cast<size_t>(count) * element);
  }
  return absl::OkStatus();
}

// `parts` [requests][outputs]
absl::Status Split(const std::vector<Tensor>& outputs, const std::vector<JointRequest>& requests,
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

template <typename T>
bool NumbersAgree(const Tensor& a, const Tensor& b) {
  const auto *x = static_cast<const T*>(a.data()), *y = static_cast<const T*>(b.data());
  for (int64_t i = 0, n = a.NumElements(); i < n; ++i) {
    const auto p = static_cast<double>(x[i]), q = static_cast<double>(y[i]);
    if (p == q || (std::isnan(p) && std::isnan(q))) continue;
    if (!(std::abs(p - q) <= kAbsolute + kRelative * std::abs(q))) return false;
  }
  return true;
}

bool Agree(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  if (a.NumElements() == 0) return true;
  switch (a.dtype()) {
    case tensorflow::DT_FLOAT:
      return NumbersAgree<float>(a, b);
    case tensorflow::DT_DOUBLE:
      return NumbersAgree<double>(a, b);
    case tensorflow::DT_HALF:
      return NumbersAgree<Eigen::half>(a, b);
    case tensorflow::DT_BFLOAT16:
      return NumbersAgree<tensorflow::bfloat16>(a, b);
    case tensorflow::DT_STRING: {
      const auto *x = static_cast<const tstring*>(a.data()), *y = static_cast<const tstring*>(b.data());
      return std::equal(x, x + a.NumElements(), y);
    }
    default:
      return std::memcmp(a.data(), b.data(), a.TotalBytes()) == 0;
  }
}

bool Agree(const std::vector<JointRequest>& requests, const std::vector<std::vector<Tensor>>& parts) {
  for (size_t r = 0; r < requests.size(); ++r) {
    if (!requests[r].status.ok()) continue;
    for (size_t i = 0; i < parts[r].size(); ++i) {
      if (!Agree(requests[r].outputs[i], parts[r][i])) return false;
    }
  }
  return true;
}

void RunOneByOne(const RunRequest& run, std::vector<JointRequest>* requests) {
  for (JointRequest& one : *requests) {
    one.outputs.clear();
    one.status = Attempt([&] { return run(*one.request, &one.outputs); });
  }
}

bool AllRan(const std::vector<JointRequest>& requests) {
  return std::all_of(requests.begin(), requests.end(), [](const JointRequest& one) { return one.status.ok(); });
}

// Outputs of one run of all, cut apart. `follow`: their first dimensions are the rows.
absl::Status RunJoint(const RunRequest& run, const std::vector<JointRequest>& requests,
                      std::vector<std::vector<Tensor>>* parts, bool* follow) {
  int64_t rows = 0;
  for (const JointRequest& one : requests) rows += one.rows;
  DecodedRequest joint;
  std::vector<Tensor> outputs;
  if (absl::Status s = Concatenate(requests, rows, &joint); !s.ok()) return s;
  if (absl::Status s = run(joint, &outputs); !s.ok()) return s;
  *follow = HaveRows(outputs, rows);
  return *follow ? Split(outputs, requests, parts) : absl::OkStatus();
}

JointOutcome RunAll(const RunRequest& run, OutputRows* known, std::vector<JointRequest>* requests) {
  const DecodedRequest& first = *requests->front().request;
  const bool same = std::all_of(requests->begin(), requests->end(),
                                [&](const JointRequest& one) { return one.rows > 0 && SameKind(first, *one.request); });
  if (requests->size() == 1 || !same) {
    RunOneByOne(run, requests);
    return {};
  }
  const OutputRows::Finding finding = known->Find(first);
  std::vector<std::vector<Tensor>> parts;
  bool follow = false;
  const absl::Status joint = finding == OutputRows::Finding::kOther
                                 ? absl::OkStatus()
                                 : Attempt([&] { return RunJoint(run, *requests, &parts, &follow); });
  const bool ran = joint.ok() && follow;
  if (ran && finding == OutputRows::Finding::kFollow) {
    for (size_t r = 0; r < requests->size(); ++r) {
      (*requests)[r].outputs = std::move(parts[r]);
      (*requests)[r].status = absl::OkStatus();
    }
    return {/*together=*/true, /*repeated=*/false};
  }
  RunOneByOne(run, requests);
  // Each alone is right and all together are not: then it is not for one of them.
  const bool untried = finding == OutputRows::Finding::kUntried;
  const bool unfit = !ran && (joint.ok() || (untried && !absl::IsResourceExhausted(joint) && AllRan(*requests)));
  if (ran || unfit) {
    const bool agree = ran && Agree(*requests, parts);
    // The answers are there; if this cannot be kept in mind, it is found out again.
    Attempt([&] {
      known->Set(first, agree ? OutputRows::Finding::kFollow : OutputRows::Finding::kOther);
      return absl::OkStatus();
    }).IgnoreError();
  }
  return {/*together=*/false, /*repeated=*/true};
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

OutputRows::Finding OutputRows::Find(const DecodedRequest& request) const {
  std::shared_lock<std::shared_mutex> lock(mutex_);
  const auto found = findings_.find(Key(request.signature, request.fetches));
  if (found != findings_.end()) return found->second;
  return findings_.size() < kMaxKept ? Finding::kUntried : Finding::kOther;
}

void OutputRows::Set(const DecodedRequest& request, Finding finding) {
  {
    std::unique_lock<std::shared_mutex> lock(mutex_);
    Finding& kept = findings_[Key(request.signature, request.fetches)];
    if (kept == finding || kept == Finding::kOther) return;
    kept = finding;
  }
  if (finding == Finding::kOther) {
    Log(Severity::kWarning, absl::StrCat("batching: signature '", request.signature->name(),
                                         "': outputs do not follow the rows of the inputs, so that its requests run "
                                         "alone"));
  }
}

JointOutcome RunTogether(const RunRequest& run, OutputRows* known, std::vector<JointRequest>* requests) noexcept {
  JointOutcome outcome;
  const absl::Status status = Attempt([&] {
    outcome = RunAll(run, known, requests);
    return absl::OkStatus();
  });
  if (!status.ok()) {
    for (JointRequest& one : *requests) one.status = status;
  }
  return outcome;
}

}  // namespace processor
