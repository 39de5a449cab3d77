// SPDX-License-Identifier: Apache-2.0
// Records of TensorFlow Serving's warm-up file, `assets.extra/tf_serving_warmup_requests`.
#ifndef PROCESSOR_CODEC_PREDICTION_LOG_H_
#define PROCESSOR_CODEC_PREDICTION_LOG_H_

#include <string_view>

#include "absl/status/statusor.h"

namespace processor {

/// Finds the request in one record, a serialised tensorflow.serving.PredictionLog.
/// \return The bytes of a PredictRequest for the codec of "tfserving"; they point into `record`. UNIMPLEMENTED for a
/// log of another kind (classify, regress, ...), INVALID_ARGUMENT for bytes that are not such a message or are empty.
absl::StatusOr<std::string_view> PredictRequestOf(std::string_view record);

}  // namespace processor

#endif  // PROCESSOR_CODEC_PREDICTION_LOG_H_
