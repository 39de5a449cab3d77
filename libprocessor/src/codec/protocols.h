// SPDX-License-Identifier: Apache-2.0
// The codecs there are.
#ifndef PROCESSOR_CODEC_PROTOCOLS_H_
#define PROCESSOR_CODEC_PROTOCOLS_H_

#include "src/codec/codec.h"

namespace processor {

/// The messages of the drop-in contract (protos/predict.proto).
const Codec* EasCodec();

/// TensorFlow Serving's messages.
const Codec* TfServingCodec();  // Predict
const Codec* ClassifyCodec();
const Codec* RegressCodec();
const Codec* MultiInferenceCodec();

/// Bodies of TensorFlow Serving's REST API.
const Codec* PredictJsonCodec();
const Codec* ClassifyJsonCodec();
const Codec* RegressJsonCodec();

/// The Open Inference Protocol v2, as messages and as JSON.
const Codec* KserveCodec();
const Codec* KserveJsonCodec();

}  // namespace processor

#endif  // PROCESSOR_CODEC_PROTOCOLS_H_
