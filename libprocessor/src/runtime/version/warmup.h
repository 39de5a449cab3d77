// SPDX-License-Identifier: Apache-2.0
// Runs requests on every session of a version before it serves, because the first runs are slow.
#ifndef PROCESSOR_RUNTIME_VERSION_WARMUP_H_
#define PROCESSOR_RUNTIME_VERSION_WARMUP_H_

#include <string>

#include "absl/status/status.h"
#include "src/runtime/config/model_config.h"
#include "src/runtime/version/model_version.h"

namespace processor {

/// Warms up a version. Takes the requests from, in this order, `config.warmup_file_name` (one serialized eas
/// PredictRequest, or TFRecords of PredictionLog), the model's assets.extra/tf_serving_warmup_requests, or the default
/// signature (ones, empty strings, open dimensions 1).
///
/// Requests from a file must succeed. A generated request may be invalid for the model: its failure is reported in
/// `version.warmup_outcome`, and the model is still served.
/// \return the fault of a file or its requests; why the load was canceled, as CheckWanted().
absl::Status WarmUp(const ModelConfig& config, const std::string& base_dir, size_t num_sessions,
                    const Cancellation& cancellation, ModelVersion& version);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_VERSION_WARMUP_H_
