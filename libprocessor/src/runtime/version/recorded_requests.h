// SPDX-License-Identifier: Apache-2.0
// The recorded requests of a version: TFRecords of PredictionLog, as TensorFlow Serving's warm-up file.
#ifndef PROCESSOR_RUNTIME_VERSION_RECORDED_REQUESTS_H_
#define PROCESSOR_RUNTIME_VERSION_RECORDED_REQUESTS_H_

#include <functional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "src/runtime/config/model_config.h"

namespace processor {

/// Whether a file has records. A request without a record around it has none.
bool HoldsRecords(const std::string& path);

/// Returns `config.warmup_file_name` as given, otherwise beside the model; empty if the configuration has none.
std::string WarmUpFileOf(const ModelConfig& config, const std::string& base_dir);

/// Returns the file that the model has in assets.extra; empty if it has none.
std::string RecordsOfModel(const std::string& saved_model_dir);

struct RecordCounts {
  int requests = 0;
  int skipped = 0;  // logs of other APIs, which are not served
};

/// Visits the PredictRequests of a file, at most as many as TensorFlow Serving reads, as bytes for the codec of
/// "tfserving". A failure of `visit` ends the reading.
/// \return errors that name the file and the record.
absl::Status ReadRecordedRequests(const std::string& path, const std::function<absl::Status(std::string_view)>& visit,
                                  RecordCounts* counts);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_VERSION_RECORDED_REQUESTS_H_
