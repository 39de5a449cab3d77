// SPDX-License-Identifier: Apache-2.0
// Reads a tf.Example from a JSON object of features. Any thread may call it.
#ifndef PROCESSOR_CODEC_EXAMPLE_JSON_H_
#define PROCESSOR_CODEC_EXAMPLE_JSON_H_

#include <string>

#include "absl/status/status.h"
#include "src/codec/json_document.h"

namespace processor {

/// Appends the serialized tf.Example of an object. Each feature is a value or a list of values, which are either strings
/// or base64, or numbers and booleans. Numbers become an int64_list if all are whole, else a float_list.
/// \return INVALID_ARGUMENT with the name of the feature.
absl::Status AppendExample(const JsonDocument& document, JsonElement element, std::string* dst);

}  // namespace processor

#endif  // PROCESSOR_CODEC_EXAMPLE_JSON_H_
