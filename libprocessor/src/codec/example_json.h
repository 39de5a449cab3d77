// SPDX-License-Identifier: Apache-2.0
// A tf.Example as a JSON object of features.
#ifndef PROCESSOR_CODEC_EXAMPLE_JSON_H_
#define PROCESSOR_CODEC_EXAMPLE_JSON_H_

#include <string>

#include "absl/status/status.h"
#include "src/codec/json_document.h"

namespace processor {

/// Appends the serialized tf.Example of an object: each feature a value or a list of values, which are all text or
/// base64, or all numbers, true and false. Whole numbers are an int64_list, and a float_list if one is not whole.
/// \return INVALID_ARGUMENT with the name of the feature.
absl::Status AppendExample(const JsonDocument& document, JsonElement element, std::string* dst);

}  // namespace processor

#endif  // PROCESSOR_CODEC_EXAMPLE_JSON_H_
