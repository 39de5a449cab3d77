// SPDX-License-Identifier: Apache-2.0
// Bytes of a protocol to tensors in signature order, and back.
//
// A codec has no state: one object serves all threads. Decoding checks everything that can be checked without the
// graph (dtype, shape against the signature, number of values, every input present exactly as the signature wants) so
// that a bad request is answered with the name of what is wrong, and never reaches TensorFlow.
#ifndef PROCESSOR_CODEC_CODEC_H_
#define PROCESSOR_CODEC_CODEC_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "src/base/signature.h"
#include "src/codec/buffer.h"
#include "tensorflow/core/framework/tensor.h"

namespace processor {

/// What a codec keeps of a request for the answer; every codec derives its own.
struct RequestDetails {
  virtual ~RequestDetails() = default;
};

/// A request in the runtime's terms. String views point into the bytes it was decoded from, or into `details`.
struct DecodedRequest {
  const Signature* signature = nullptr;
  /// [signature->inputs().size()], in that order, every one set.
  std::vector<tensorflow::Tensor> feeds;
  /// Positions in signature->outputs(), in the order asked for, without repetition; never empty after decoding.
  std::vector<int> fetches;
  /// The keys that the client used for the fetches, in the same order: aliases, or tensor names if it asked by those.
  /// Empty: the aliases.
  std::vector<std::string_view> fetch_keys;

  /// What a protocol says of the model; the runtime checks it, a response repeats it.
  std::string_view model_name;
  std::optional<int64_t> model_version;
  std::string_view version_label;

  std::shared_ptr<const RequestDetails> details;
  /// Further runs that the one answer needs, of other signatures of the same model version: the later tasks of a
  /// MultiInference. Their outputs follow those of this one. Such a request shares no batch with others.
  std::vector<DecodedRequest> next;
};

/// What is known of a request beside its bytes.
struct RequestOptions {
  /// Used instead of the signature named in the bytes, unless empty.
  std::string_view signature = {};
  /// Size of the JSON that goes before the binary data ("kserve_json": Inference-Header-Content-Length); 0: all is JSON.
  size_t header_length = 0;
};

/// What a response needs beside the tensors.
struct ResponseContext {
  /// The version that answered; none if the model has no number.
  std::optional<int64_t> model_version = std::nullopt;
  /// The model's name where the request does not say it.
  std::string_view model_name = {};
};

struct Response {
  Buffer body;
  /// As in RequestOptions; a host sends it as a header.
  size_t header_length = 0;
};

class Codec {
 public:
  virtual ~Codec() = default;

  /// Reads a request.
  /// \return INVALID_ARGUMENT or NOT_FOUND (signature, output), with the name of the input, output or field;
  /// UNIMPLEMENTED for an input of a dtype that the protocol does not have, RESOURCE_EXHAUSTED if memory is short.
  virtual absl::Status Decode(std::string_view bytes, const SignatureSet& signatures, const RequestOptions& options,
                              DecodedRequest* dst) const = 0;

  /// Writes a response. `outputs` [request.fetches.size(), then those of request.next], in that order.
  /// \return UNIMPLEMENTED for a dtype that the protocol does not have, RESOURCE_EXHAUSTED beyond 2 GiB or memory,
  /// INTERNAL or FAILED_PRECONDITION for outputs that the method cannot answer with.
  virtual absl::Status Encode(const DecodedRequest& request, const std::vector<tensorflow::Tensor>& outputs,
                              const ResponseContext& context, Response* dst) const = 0;
};

/// One method of a protocol.
struct Method {
  std::string_view protocol;
  std::string_view name;
  /// Null: it runs nothing and is answered by Describe() (descriptions.h).
  const Codec* codec;
};

/// All methods; those of a protocol stand together, its default one first.
const std::vector<Method>& Methods();

/// The method of that name, the protocol's default one for ""; nullptr if there is none.
const Method* FindMethod(std::string_view protocol, std::string_view method);

/// The codec of a method that runs a model; nullptr if there is none.
const Codec* FindCodec(std::string_view protocol, std::string_view method = "");

/// Names of all protocols, for messages.
const std::vector<std::string>& Protocols();

/// Whether requests and answers of the protocol are JSON.
bool IsJson(std::string_view protocol);

/// Checks a decoded input against its place in the signature.
/// \return INVALID_ARGUMENT: "input 'dense': dtype DT_DOUBLE, expected DT_FLOAT" or the like.
absl::Status CheckDtype(const TensorSpec& spec, tensorflow::DataType dtype);
absl::Status CheckShape(const TensorSpec& spec, const tensorflow::TensorShape& shape);

/// Completes a request once all inputs and the output filter have been read: takes the defaults of inputs that are missing
/// (`seen` [inputs]), fails if there is none, turns `output_keys` (all outputs if empty) into fetches.
absl::Status FinishRequest(const std::vector<bool>& seen, const std::vector<std::string_view>& output_keys,
                           DecodedRequest* dst);

}  // namespace processor

#endif  // PROCESSOR_CODEC_CODEC_H_
