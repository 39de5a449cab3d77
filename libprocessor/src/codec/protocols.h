// SPDX-License-Identifier: Apache-2.0
// The codecs there are, one source file each.
#ifndef PROCESSOR_CODEC_PROTOCOLS_H_
#define PROCESSOR_CODEC_PROTOCOLS_H_

#include "src/codec/codec.h"

namespace processor {

/// The messages of the drop-in contract (proto/predict.proto).
const Codec* EasCodec();

/// TensorFlow Serving's PredictRequest and PredictResponse.
const Codec* TfServingCodec();

}  // namespace processor

#endif  // PROCESSOR_CODEC_PROTOCOLS_H_
