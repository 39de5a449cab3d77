// SPDX-License-Identifier: Apache-2.0
// Codecs turn the bytes of a protocol into tensors in signature order, and outputs into the bytes of a response.
//
// A codec has no state and lives until the process ends; protocols.h has the table of all codecs, and any thread may use
// them. Decoding checks everything that can be checked without the graph (dtype, shape against the signature, number of
// values, presence of each input), so that the error of a bad request names what is wrong and the request never reaches
// TensorFlow.
#ifndef PROCESSOR_CODEC_CODEC_H_
#define PROCESSOR_CODEC_CODEC_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "src/base/signature.h"
#include "src/codec/buffer.h"
#include "tensorflow/core/framework/tensor.h"

namespace processor {

/// What a codec keeps of a request for its response; each codec derives its own.
struct RequestDetails {
  virtual ~RequestDetails() = default;
};

/// A request in the runtime's terms. String views point into the bytes that it was decoded from, or into `details`.
struct DecodedRequest {
  const Signature* signature = nullptr;
  /// [signature->inputs().size()] in that order; each is set after decoding.
  std::vector<tensorflow::Tensor> feeds;
  /// Positions in signature->outputs() in the requested order, without repetition; never empty after decoding.
  std::vector<int> fetches;
  /// The keys that the client used for the fetches, in the same order: aliases or tensor names. Empty: the aliases.
  std::vector<std::string_view> fetch_keys;

  /// The model that the bytes name; the runtime checks it, and a response repeats it.
  std::string_view model_name;
  std::optional<int64_t> model_version;
  std::string_view version_label;

  std::shared_ptr<const RequestDetails> details;
  /// Further runs of other signatures of the same version for the one response: the later tasks of a MultiInference.
  /// Their outputs follow those of this one. Such a request is not batched with others.
  std::vector<DecodedRequest> next;

  /// Empties the request, but keeps the memory of its lists for another one.
  void Clear() {
    signature = nullptr;
    feeds.clear();
    fetches.clear();
    fetch_keys.clear();
    model_name = {};
    model_version.reset();
    version_label = {};
    details.reset();
    next.clear();
  }
};

/// Which inputs of a signature a request has [inputs].
using SeenInputs = absl::InlinedVector<bool, 64>;
/// The outputs that a request names.
using OutputKeys = absl::InlinedVector<std::string_view, 8>;

/// What a caller knows of a request beside its bytes.
struct RequestOptions {
  /// The signature to use instead of that in the bytes, unless empty.
  std::string_view signature = {};
  /// The size of the JSON before the binary data ("kserve_json": Inference-Header-Content-Length); 0: everything is JSON.
  size_t header_length = 0;
};

/// What a response says beside the tensors.
struct ResponseContext {
  /// The version that ran; none if the model has no version number.
  std::optional<int64_t> model_version = std::nullopt;
  /// The name of the model, used if the request does not have it.
  std::string_view model_name = {};
};

/// The bytes of a response, and what a host says of them.
struct Response {
  Buffer body;
  /// As in RequestOptions; a host sends it as a header.
  size_t header_length = 0;
};

/// Reads requests and writes responses of one method of a protocol.
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
  /// INTERNAL or FAILED_PRECONDITION for outputs that do not fit the method.
  virtual absl::Status Encode(const DecodedRequest& request, const std::vector<tensorflow::Tensor>& outputs,
                              const ResponseContext& context, Response* dst) const = 0;
};

/// Check a decoded input against its specification in the signature.
/// \return INVALID_ARGUMENT: "input 'dense': dtype DT_DOUBLE, expected DT_FLOAT" or the like.
absl::Status CheckDtype(const TensorSpec& spec, tensorflow::DataType dtype);
absl::Status CheckShape(const TensorSpec& spec, const tensorflow::TensorShape& shape);

/// Completes a request after all inputs and the output filter were read: sets missing inputs (`seen` [inputs]) to their
/// defaults, and turns `output_keys` (all outputs if empty) into fetches.
/// \return INVALID_ARGUMENT for a missing input without default, NOT_FOUND for an unknown output.
absl::Status FinishRequest(absl::Span<const bool> seen, absl::Span<const std::string_view> output_keys,
                           DecodedRequest* dst);

}  // namespace processor

#endif  // PROCESSOR_CODEC_CODEC_H_
