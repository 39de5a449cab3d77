// SPDX-License-Identifier: Apache-2.0
// The one table of protocols, their methods and the codec of each method.
//
// The table is constant, so any thread may read it. A request is looked up once, where it enters (c_api/request_work.cc,
// host/model_host.cc); from there its method or codec is handed on.
#ifndef PROCESSOR_CODEC_PROTOCOLS_H_
#define PROCESSOR_CODEC_PROTOCOLS_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "src/codec/codec.h"

namespace processor {

/// One method of a protocol.
struct Method {
  std::string_view protocol;
  std::string_view name;
  /// Null if the method runs no model; then Describe() (descriptions.h) answers it.
  const Codec* codec;
};

/// Returns all methods. Those of a protocol stand together, its default method first.
const std::vector<Method>& Methods();

/// Returns a method by name, or the default method of the protocol for ""; nullptr if there is none.
const Method* FindMethod(std::string_view protocol, std::string_view method);

/// Returns the codec of a method; nullptr if there is no such method or it runs no model.
const Codec* FindCodec(std::string_view protocol, std::string_view method = "");

/// Returns UNIMPLEMENTED for a method that FindMethod() does not find, with the names that it knows.
absl::Status UnknownMethod(std::string_view protocol, std::string_view method);

/// Returns the names of all protocols.
const std::vector<std::string>& Protocols();

/// Whether requests and responses of the protocol are JSON.
bool IsJson(std::string_view protocol);

/// Whether a request asks for the signature of the model as JSON, as an empty request of "eas" does.
bool AsksForSignature(const Codec* codec, std::string_view bytes);

/// The codec of the drop-in contract (protos/predict.proto).
const Codec* EasCodec();

/// The codecs of TensorFlow Serving's messages; the first is that of Predict.
const Codec* TfServingCodec();
const Codec* ClassifyCodec();
const Codec* RegressCodec();
const Codec* MultiInferenceCodec();

/// The codecs of TensorFlow Serving's REST API.
const Codec* PredictJsonCodec();
const Codec* ClassifyJsonCodec();
const Codec* RegressJsonCodec();

/// The codecs of the Open Inference Protocol v2: messages and JSON.
const Codec* KserveCodec();
const Codec* KserveJsonCodec();

}  // namespace processor

#endif  // PROCESSOR_CODEC_PROTOCOLS_H_
