// SPDX-License-Identifier: Apache-2.0
// Reads the fields of a ModelInferRequest of the Open Inference Protocol v2. Views point into its bytes; any thread may
// call these functions.
#ifndef PROCESSOR_CODEC_KSERVE_REQUEST_H_
#define PROCESSOR_CODEC_KSERVE_REQUEST_H_

#include <forward_list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "src/codec/model_spec.h"
#include "src/codec/predict_codec.h"

namespace processor {

/// The fields of a request. It cannot be copied, because views may point into `memory`.
struct InferRequest {
  InferRequest() = default;
  InferRequest(const InferRequest&) = delete;
  InferRequest& operator=(const InferRequest&) = delete;

  ModelSpecView spec;
  std::string_view id;
  std::string_view version;
  Payloads inputs, raw, outputs;
  std::forward_list<std::string> memory;  // of fields that came in parts
};

/// Reads the fields of a request, but not its tensors.
/// \return INVALID_ARGUMENT for malformed bytes or a signature name that is not a text.
absl::Status ReadInferRequest(std::string_view bytes, InferRequest* dst);

/// One InferInputTensor, whose values are not read yet.
struct InferInput {
  std::string_view name, datatype, contents;
  Dims dims;
};

/// Reads an input. `memory` will own contents that came in parts.
/// \return INVALID_ARGUMENT for malformed bytes or a parameter that must not be ignored.
absl::Status ReadInferInput(std::string_view message, InferInput* dst, std::forward_list<std::string>* memory);

/// Reads the names of the requested outputs. \return as ReadInferInput().
absl::Status ReadOutputNames(const Payloads& messages, std::vector<std::string_view>* names);

}  // namespace processor

#endif  // PROCESSOR_CODEC_KSERVE_REQUEST_H_
