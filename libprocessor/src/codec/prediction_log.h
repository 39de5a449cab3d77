// SPDX-License-Identifier: Apache-2.0
// Reads and writes PredictionLog records, of which TensorFlow Serving's warm-up file
// (`assets.extra/tf_serving_warmup_requests`) and the request log consist. Any thread may call these functions.
#ifndef PROCESSOR_CODEC_PREDICTION_LOG_H_
#define PROCESSOR_CODEC_PREDICTION_LOG_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "src/codec/codec.h"

namespace processor {

/// Finds the request in one record, a serialized tensorflow.serving.PredictionLog.
/// \return The bytes of a PredictRequest for the codec of "tfserving"; they point into `record`. UNIMPLEMENTED for a
/// log of another kind (classify, regress, ...), INVALID_ARGUMENT for bytes that are not such a message or are empty.
absl::StatusOr<std::string_view> PredictRequestOf(std::string_view record);

/// Writes a request of any protocol as a PredictRequest: its signature, feeds and fetches, and the name of the model, but
/// no version, so that it can be sent to any version.
/// \return UNIMPLEMENTED for a dtype that TensorProto does not have, RESOURCE_EXHAUSTED beyond 2 GiB or memory.
absl::Status EncodePredictRequest(const DecodedRequest& request, std::string_view model_name, Buffer* dst);

/// Writes the outputs of a request as a PredictResponse: those of its own signature, not of request.next.
absl::Status EncodePredictResponse(const DecodedRequest& request, const std::vector<tensorflow::Tensor>& outputs,
                                   const ResponseContext& context, Buffer* dst);

/// Returns a serialized PredictionLog of a request and a response, which may be empty.
std::string EncodePredictionLog(std::string_view predict_request, std::string_view predict_response);

/// The LogMetadata of a logged request.
struct LoggedFrom {
  std::string_view model;
  int64_t version = 0;       // that ran it
  double sampling_rate = 0;  // in (0, 1]
};

/// Returns a serialized PredictionLog of a sampled request, without a response.
std::string EncodePredictionLog(std::string_view predict_request, const LoggedFrom& from);

}  // namespace processor

#endif  // PROCESSOR_CODEC_PREDICTION_LOG_H_
