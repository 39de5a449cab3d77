// SPDX-License-Identifier: Apache-2.0
#include "src/codec/examples.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "src/codec/feed_arena.h"
#include "src/codec/message_text.h"

namespace processor {
namespace {

using tensorflow::Tensor;
using tensorflow::tstring;

/// A small message may ask for a large context many times over.
constexpr size_t kMaxContextBytes = size_t{64} << 20;

constexpr std::string_view kClassesKey = "classes";
constexpr std::string_view kScores = "scores";
constexpr std::string_view kOutputs = "outputs";

absl::Status WrongOutput(const ExampleTask& task, std::string_view alias, const Tensor& tensor,
                         std::string_view expected) {
  return absl::FailedPreconditionError(absl::StrCat("signature '", task.signature->name(), "': output '", alias,
                                                    "' of ", DtypeName(tensor.dtype()), " and shape ",
                                                    tensor.shape().DebugString(), ", expected ", expected));
}

/// Adds the output of that name to the fetches; -1 if there is none.
int Fetch(const Signature& signature, std::string_view alias, DecodedRequest* dst) {
  for (size_t i = 0; i < signature.outputs().size(); ++i) {
    if (signature.outputs()[i].alias != alias) continue;
    dst->fetches.push_back(static_cast<int>(i));
    return static_cast<int>(dst->fetches.size()) - 1;
  }
  return -1;
}

}  // namespace

std::string_view MethodName(ExampleMethod method) {
  return method == ExampleMethod::kClassify ? "tensorflow/serving/classify" : "tensorflow/serving/regress";
}

absl::Status MakeExamples(const ExampleBatch& batch, Tensor* dst) {
  const size_t count = batch.examples.size();
  if (count == 0) return absl::InvalidArgumentError("input: no examples, expected at least one");
  if (count > kMaxExamples) {
    return absl::InvalidArgumentError(absl::StrCat("input: too many examples, expected at most ", kMaxExamples));
  }
  if (!batch.context.empty() && count > kMaxContextBytes / batch.context.size()) {
    return absl::InvalidArgumentError(absl::StrCat("input: a context of ", batch.context.size(), " bytes for ", count,
                                                   " examples, expected at most ", kMaxContextBytes >> 20,
                                                   " MiB in all"));
  }
  FeedArena arena;
  const tensorflow::TensorShape shape({static_cast<int64_t>(count)});
  size_t bytes = count * batch.context.size();
  for (const std::string_view example : batch.examples) bytes += example.size();
  if (absl::Status s = arena.Make(tensorflow::DT_STRING, shape, sizeof(tstring), dst, bytes); !s.ok()) {
    return absl::Status(s.code(), absl::StrCat("input: ", s.message()));
  }
  auto* const strings = static_cast<tstring*>(dst->data());
  for (size_t i = 0; i < count; ++i) {
    // To join two messages is to merge them.
    const std::string_view example = batch.examples[i];
    strings[i].resize_uninitialized(batch.context.size() + example.size());
    char* const data = strings[i].mdata();
    if (!batch.context.empty()) std::memcpy(data, batch.context.data(), batch.context.size());
    if (!example.empty()) std::memcpy(data + batch.context.size(), example.data(), example.size());
  }
  return absl::OkStatus();
}

absl::Status PrepareTask(ExampleMethod method, const Tensor& examples, DecodedRequest* dst, ExampleDetails* details) {
  const Signature& signature = *dst->signature;
  const auto wrong = [&signature](absl::StatusCode code, const auto&... words) {
    return absl::Status(code, absl::StrCat("signature '", signature.name(), "': ", words...));
  };
  if (signature.method_name() != MethodName(method)) {
    return wrong(absl::StatusCode::kInvalidArgument, "method name '", Printable(signature.method_name()),
                 "', expected '", MethodName(method), "'");
  }
  if (signature.inputs().size() != 1 || signature.inputs()[0].dtype != tensorflow::DT_STRING) {
    return wrong(absl::StatusCode::kFailedPrecondition, signature.inputs().size(),
                 " inputs, expected one of DT_STRING that takes examples");
  }
  if (absl::Status status = CheckShape(signature.inputs()[0], examples.shape()); !status.ok()) return status;
  ExampleTask task;
  task.method = method;
  task.signature = &signature;
  dst->fetches.clear();
  if (method == ExampleMethod::kClassify) {
    task.classes = Fetch(signature, kClassesKey, dst);
    task.scores = Fetch(signature, kScores, dst);
  } else {
    task.scores = Fetch(signature, kOutputs, dst);
  }
  if (dst->fetches.empty()) {
    return wrong(absl::StatusCode::kFailedPrecondition, "no output ",
                 method == ExampleMethod::kClassify ? "'classes' or 'scores'" : "'outputs'", ", expected one");
  }
  task.fetches = static_cast<int>(dst->fetches.size());
  dst->feeds = {examples};
  details->examples = examples.NumElements();
  details->tasks.push_back(task);
  return absl::OkStatus();
}

absl::Status ReadClassifications(const ExampleTask& task, const Tensor* outputs, int64_t examples,
                                 Classifications* dst) {
  *dst = Classifications();
  bool known = false;
  const auto check = [&](int at, std::string_view alias, tensorflow::DataType dtype) -> absl::Status {
    const Tensor& tensor = outputs[at];
    if (tensor.dtype() != dtype || tensor.dims() != 2 || tensor.dim_size(0) != examples) {
      return WrongOutput(task, alias, tensor,
                         absl::StrCat(DtypeName(dtype), " and shape [", examples, ",number of classes]"));
    }
    if (known && dst->classes != tensor.dim_size(1)) {
      return WrongOutput(task, alias, tensor, absl::StrCat("as many as there are labels, ", dst->classes));
    }
    known = true;
    dst->classes = tensor.dim_size(1);
    return absl::OkStatus();
  };
  if (task.classes >= 0) {
    if (absl::Status s = check(task.classes, kClassesKey, tensorflow::DT_STRING); !s.ok()) return s;
    dst->labels = static_cast<const tstring*>(outputs[task.classes].data());
  }
  if (task.scores >= 0) {
    if (absl::Status s = check(task.scores, kScores, tensorflow::DT_FLOAT); !s.ok()) return s;
    dst->scores = static_cast<const float*>(outputs[task.scores].data());
  }
  return absl::OkStatus();
}

absl::Status ReadRegressions(const ExampleTask& task, const Tensor* outputs, int64_t examples, const float** values) {
  const Tensor& tensor = outputs[task.scores];
  const bool column = tensor.dims() == 2 && tensor.dim_size(1) == 1;
  if (tensor.dtype() != tensorflow::DT_FLOAT || (tensor.dims() != 1 && !column) || tensor.dim_size(0) != examples) {
    return WrongOutput(task, kOutputs, tensor,
                       absl::StrCat("DT_FLOAT and shape [", examples, "] or [", examples, ",1]"));
  }
  *values = static_cast<const float*>(tensor.data());
  return absl::OkStatus();
}

}  // namespace processor
