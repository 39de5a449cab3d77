// SPDX-License-Identifier: Apache-2.0
// Reads the JSON of a request of the Open Inference Protocol. Views and elements point into the document and the bytes.
#ifndef PROCESSOR_CODEC_KSERVE_JSON_H_
#define PROCESSOR_CODEC_KSERVE_JSON_H_

#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "src/codec/json_document.h"
#include "src/codec/predict_codec.h"

namespace processor {

/// One element of "inputs".
struct JsonInput {
  std::string_view name, datatype;
  Dims shape;
  std::optional<JsonElement> data;
  std::optional<std::string_view> binary;  // its bytes behind the JSON
};

/// One element of "outputs".
struct JsonOutput {
  std::string_view name;
  std::optional<bool> binary;
};

/// The body of a request.
struct InferBody {
  std::string_view id, signature;
  bool binary_outputs = false;
  std::vector<JsonInput> inputs;
  std::vector<JsonOutput> outputs;
};

/// Reads the JSON and assigns the binary data behind it to inputs, which must use all of it.
/// \return INVALID_ARGUMENT with the name of the key or input.
absl::Status ReadInferBody(const JsonObject& root, std::string_view binary, InferBody* dst);

}  // namespace processor

#endif  // PROCESSOR_CODEC_KSERVE_JSON_H_
