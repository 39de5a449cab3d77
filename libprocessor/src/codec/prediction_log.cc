// SPDX-License-Identifier: Apache-2.0
#include "src/codec/prediction_log.h"

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "src/codec/message_builder.h"
#include "src/codec/tfserving_spec.h"
#include "src/codec/wire.h"

namespace processor {
namespace {

/// Fields of the oneof PredictionLog.log_type.
constexpr uint32_t kClassifyLog = 2;
constexpr uint32_t kRegressLog = 3;
constexpr uint32_t kMultiInferenceLog = 4;
constexpr uint32_t kSessionRunLog = 5;
constexpr uint32_t kPredictLog = 6;
constexpr uint32_t kPredictStreamedLog = 7;
constexpr uint32_t kRequest = 1;  // of PredictLog
constexpr uint32_t kResponse = 2;
constexpr uint32_t kLogMetadata = 1;  // of PredictionLog
constexpr uint32_t kModelSpec = 1;    // of LogMetadata
constexpr uint32_t kSamplingConfig = 2;
constexpr uint32_t kSamplingRate = 1;  // of SamplingConfig

const char* LogName(uint32_t number) {
  switch (number) {
    case kClassifyLog:
      return "classify_log";
    case kRegressLog:
      return "regress_log";
    case kMultiInferenceLog:
      return "multi_inference_log";
    case kSessionRunLog:
      return "session_run_log";
    case kPredictLog:
      return "predict_log";
    case kPredictStreamedLog:
      return "predict_streamed_log";
    default:
      return nullptr;
  }
}

absl::Status MalformedLog() {
  return absl::InvalidArgumentError("warm-up record: malformed or truncated bytes, expected a PredictionLog");
}

}  // namespace

absl::StatusOr<std::string_view> PredictRequestOf(std::string_view record) {
  WireReader reader(record);
  WireField field;
  WireField log{};
  while (!reader.done()) {
    if (!reader.Next(&field)) return MalformedLog();
    if (field.type == WireType::kBytes && LogName(field.number) != nullptr) log = field;
  }
  if (log.number == 0) {
    return absl::InvalidArgumentError("warm-up record: no log in it, expected a PredictionLog with predict_log");
  }
  if (log.number != kPredictLog) {
    return absl::UnimplementedError(absl::StrCat("warm-up record: ", LogName(log.number), ", expected predict_log"));
  }
  WireReader predict_log(log.payload);
  std::string_view request;
  while (!predict_log.done()) {
    if (!predict_log.Next(&field)) return MalformedLog();
    if (field.type == WireType::kBytes && field.number == kRequest) request = field.payload;
  }
  return request;
}

std::string EncodePredictionLog(std::string_view predict_request, std::string_view predict_response) {
  MessageBuilder log, record;
  log.Bytes(kRequest, predict_request, true).Bytes(kResponse, predict_response);
  record.Bytes(kPredictLog, log.bytes());
  return record.bytes();
}

std::string EncodePredictionLog(std::string_view predict_request, const LoggedFrom& from) {
  MessageBuilder version, spec, sampling, metadata, log, record;
  version.Varint(spec_fields::kWrappedValue, static_cast<uint64_t>(from.version));
  spec.Bytes(spec_fields::kName, from.model).Bytes(spec_fields::kVersion, version.bytes(), true);
  sampling.Double(kSamplingRate, from.sampling_rate);
  metadata.Bytes(kModelSpec, spec.bytes()).Bytes(kSamplingConfig, sampling.bytes());
  log.Bytes(kRequest, predict_request, true);
  record.Bytes(kLogMetadata, metadata.bytes()).Bytes(kPredictLog, log.bytes());
  return record.bytes();
}

}  // namespace processor
