// SPDX-License-Identifier: Apache-2.0
// What the codecs of TensorFlow Serving's REST API share.
#ifndef PROCESSOR_CODEC_TFSERVING_JSON_H_
#define PROCESSOR_CODEC_TFSERVING_JSON_H_

#include <string_view>

#include "absl/status/status.h"
#include "src/codec/json_document.h"

namespace processor {

/// Reads the value of the key "signature_name". \return INVALID_ARGUMENT if it is not a string.
absl::Status ReadSignatureName(JsonElement element, std::string_view* name);

}  // namespace processor

#endif  // PROCESSOR_CODEC_TFSERVING_JSON_H_
