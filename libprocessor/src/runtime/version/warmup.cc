// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/version/warmup.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <numeric>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/codec/predict_codec.h"
#include "src/codec/protocols.h"
#include "src/runtime/version/recorded_requests.h"
#include "tensorflow/core/framework/register_types.h"
#include "tensorflow/core/framework/tensor.h"

namespace processor {
namespace {

namespace fs = std::filesystem;
using tensorflow::Tensor;

absl::Status RunOnAllSessions(const DecodedRequest& request, int runs, size_t num_sessions,
                              const Cancellation& cancellation, ModelVersion& version) {
  std::vector<Tensor> outputs;
  for (size_t session = 0; session < num_sessions; ++session) {
    for (int run = 0; run < runs; ++run) {
      if (absl::Status s = CheckWanted(cancellation); !s.ok()) return s;
      if (absl::Status s = version.Run(static_cast<int>(session), request, version.Pin(), &outputs); !s.ok()) return s;
    }
  }
  return absl::OkStatus();
}

absl::Status RunBytes(const Codec& codec, std::string_view bytes, int runs, size_t num_sessions,
                      const Cancellation& cancellation, ModelVersion& version) {
  DecodedRequest request;
  if (absl::Status s = codec.Decode(bytes, version.signatures(), {}, &request); !s.ok()) return s;
  return RunOnAllSessions(request, runs, num_sessions, cancellation, version);
}

absl::Status WarmUpFromRequest(const std::string& path, const ModelConfig& config, size_t num_sessions,
                               const Cancellation& cancellation, ModelVersion& version) {
  std::ifstream stream(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(stream)), std::istreambuf_iterator<char>());
  if (!stream.good() && !stream.eof()) {
    return absl::NotFoundError(absl::StrCat("warmup_file_name '", path, "': cannot be read"));
  }
  if (absl::Status s = RunBytes(*EasCodec(), bytes, config.warmup_runs, num_sessions, cancellation, version); !s.ok()) {
    return absl::Status(s.code(), absl::StrCat("warmup_file_name '", path, "': ", s.message()));
  }
  version.warmup_outcome = absl::StrCat("file: ", config.warmup_runs, " runs on each session");
  return absl::OkStatus();
}

// `name` is used in the outcome; `count`: the number of records.
absl::Status WarmUpFromRecords(const std::string& path, std::string_view name, size_t num_sessions,
                               const Cancellation& cancellation, ModelVersion& version, int* count) {
  const auto run = [&](std::string_view bytes) {
    return RunBytes(*TfServingCodec(), bytes, 1, num_sessions, cancellation, version);
  };
  RecordCounts counts;
  if (absl::Status s = ReadRecordedRequests(path, run, &counts); !s.ok()) return s;
  *count = counts.requests;
  if (counts.requests > 0) version.records = path;
  version.warmup_outcome = absl::StrCat(name, ": ", counts.requests, " records on each session");
  if (counts.skipped > 0) absl::StrAppend(&version.warmup_outcome, ", ", counts.skipped, " of other APIs skipped");
  return absl::OkStatus();
}

void FillWithOnes(Tensor* tensor) {
  switch (tensor->dtype()) {
#define PROCESSOR_FILL(T)                             \
  case tensorflow::DataTypeToEnum<T>::value:          \
    tensor->flat<T>().setConstant(static_cast<T>(1)); \
    break;
    TF_CALL_REAL_NUMBER_TYPES(PROCESSOR_FILL)
    TF_CALL_COMPLEX_TYPES(PROCESSOR_FILL)
    TF_CALL_bool(PROCESSOR_FILL)
#undef PROCESSOR_FILL
        default : break;  // strings begin empty
  }
}

absl::Status Generate(const Signature& signature, DecodedRequest* request) {
  FeedArena arena(&ByteBudget::WarmUp());
  request->signature = &signature;
  for (const TensorSpec& input : signature.inputs()) {
    if (input.dtype == tensorflow::DT_RESOURCE || input.dtype == tensorflow::DT_VARIANT) {
      return absl::UnimplementedError(absl::StrCat("input '", input.alias, "' is no dense tensor"));
    }
    tensorflow::TensorShape shape;
    // If the rank is open, one dimension is the likeliest.
    const int rank = input.shape.unknown_rank() ? 1 : input.shape.dims();
    int64_t elements = 1;
    for (int i = 0; i < rank; ++i) {
      const int64_t size = input.shape.unknown_rank() || input.shape.dim_size(i) < 0 ? 1 : input.shape.dim_size(i);
      if (__builtin_mul_overflow(elements, size, &elements) || elements > (int64_t{1} << 26)) {
        return absl::ResourceExhaustedError(absl::StrCat("input '", input.alias, "' is too large to generate"));
      }
      shape.AddDim(size);
    }
    Tensor tensor;
    if (input.default_value.has_value()) {
      tensor = *input.default_value;  // the model is more likely to accept it than ones
    } else {
      const size_t width =
          input.dtype == tensorflow::DT_STRING ? sizeof(tensorflow::tstring) : tensorflow::DataTypeSize(input.dtype);
      if (absl::Status s = MakeInput(input, shape, width, 0, &arena, &tensor); !s.ok()) return s;
      FillWithOnes(&tensor);
    }
    request->feeds.push_back(std::move(tensor));
  }
  request->fetches.resize(signature.outputs().size());
  std::iota(request->fetches.begin(), request->fetches.end(), 0);
  return absl::OkStatus();
}

}  // namespace

absl::Status WarmUp(const ModelConfig& config, const std::string& base_dir, size_t num_sessions,
                    const Cancellation& cancellation, ModelVersion& version) {
  std::error_code error;
  if (const std::string path = WarmUpFileOf(config, base_dir); !path.empty()) {
    if (!fs::is_regular_file(path, error)) {
      return absl::NotFoundError(absl::StrCat("warmup_file_name '", path, "': no such file"));
    }
    if (!HoldsRecords(path)) return WarmUpFromRequest(path, config, num_sessions, cancellation, version);
    int count = 0;
    absl::Status status = WarmUpFromRecords(path, "file", num_sessions, cancellation, version, &count);
    if (status.ok() && count == 0) {
      status = absl::InvalidArgumentError("no predict request in it, expected at least one");
    }
    if (status.ok()) return status;
    return absl::Status(status.code(), absl::StrCat("warmup_file_name '", path, "': ", status.message()));
  }
  if (const std::string path = RecordsOfModel(version.source().saved_model_dir); !path.empty()) {
    int count = 0;
    const absl::Status status =
        WarmUpFromRecords(path, fs::path(path).filename().string(), num_sessions, cancellation, version, &count);
    if (!status.ok() || count > 0) return status;
  }

  DecodedRequest request;
  absl::Status status = Generate(*version.signatures().default_signature(), &request);
  if (status.ok()) status = RunOnAllSessions(request, config.warmup_runs, num_sessions, cancellation, version);
  if (absl::Status s = CheckWanted(cancellation); !s.ok()) return s;
  if (!version.warmup_outcome.empty()) version.warmup_outcome.append("; ");
  if (status.ok()) {
    absl::StrAppend(&version.warmup_outcome, "generated: ", config.warmup_runs, " runs on each session");
  } else {
    // serving-proxy recognizes the text by its end (serving_proxy/records/hosts.py).
    absl::StrAppend(&version.warmup_outcome, "generated request failed: ", status.ToString(), "; not warmed up");
  }
  return absl::OkStatus();
}

}  // namespace processor
