// SPDX-License-Identifier: Apache-2.0
// What the bodies of TensorFlow Serving's REST API share.
#ifndef PROCESSOR_CODEC_TFSERVING_JSON_H_
#define PROCESSOR_CODEC_TFSERVING_JSON_H_

#include <string_view>

#include "absl/status/status.h"
#include "src/codec/json_document.h"

namespace processor {

/// The value of the key "signature_name".
absl::Status ReadSignatureName(JsonElement element, std::string_view* name);

}  // namespace processor

#endif  // PROCESSOR_CODEC_TFSERVING_JSON_H_
