// SPDX-License-Identifier: Apache-2.0
// Reads what routing needs of a request before any tensor is decoded: the model that it names, and its routing input.
// Any thread may call these functions; views point into the bytes of the request.
#ifndef PROCESSOR_CODEC_MODEL_SPEC_H_
#define PROCESSOR_CODEC_MODEL_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "src/codec/protocols.h"

namespace processor {

/// The model, version and signature that a request names.
struct ModelSpecView {
  std::string_view name;
  std::optional<int64_t> version;
  std::string_view label;
  std::string_view signature;
};

/// Finds what the bytes of a request say of the model, without decoding tensors. What they do not say stays empty: the
/// JSON protocols say it in the URL, "eas" nowhere.
/// \return INVALID_ARGUMENT for malformed bytes.
absl::Status PeekModel(const Method& method, std::string_view bytes, ModelSpecView* dst);

/// Reads a version string of the Open Inference Protocol: a number, else a label; "" is neither.
void ReadVersionText(std::string_view text, ModelSpecView* dst);

/// Finds the input `input_name` of a request that runs a model: dtype string or int64, one value or all values equal.
/// Other inputs are not decoded. `header_length`: as in RequestOptions.
/// \param[out] key  the string, or the number as decimal text.
/// \return NOT_FOUND if there is no such input, it is of another dtype, or its values differ; INVALID_ARGUMENT for
/// malformed bytes. Decoding checks later whether the input fits the signature.
absl::Status PeekInput(const Method& method, std::string_view bytes, std::string_view input_name, std::string* key,
                       size_t header_length = 0);

}  // namespace processor

#endif  // PROCESSOR_CODEC_MODEL_SPEC_H_
