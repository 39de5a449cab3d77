// SPDX-License-Identifier: Apache-2.0
// Protocol "kserve_json", method infer: the JSON of the Open Inference Protocol v2, with the extension for binary data:
// tensors may lie as raw bytes behind the JSON, in the order in which it names them.
#include "src/codec/kserve_json.h"

#include <list>
#include <string>

#include "absl/strings/str_cat.h"
#include "src/codec/input_places.h"
#include "src/codec/json_values.h"
#include "src/codec/json_writer.h"
#include "src/codec/kserve_parameters.h"
#include "src/codec/kserve_tensors.h"
#include "src/codec/message_text.h"
#include "src/codec/protocols.h"
#include "src/codec/tfserving_spec.h"

namespace processor {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;

constexpr const char* kKserveJson = "kserve_json";

struct InferJsonDetails : RequestDetails {
  std::string id;
  std::list<std::string> keys;  // what fetch_keys point at
  std::vector<bool> binary;     // of each fetch
  bool binary_outputs = false;  // of those that were not named
};

class InferJson final : public Codec {
 public:
  absl::Status Decode(std::string_view bytes, const SignatureSet& signatures, const RequestOptions& options,
                      DecodedRequest* dst) const override {
    const size_t header = options.header_length == 0 ? bytes.size() : options.header_length;
    if (header == kNoHeader) return DecodeValue(bytes, signatures, options, dst);
    if (header > bytes.size()) {
      return absl::InvalidArgumentError(absl::StrCat("Inference-Header-Content-Length: ", header,
                                                     ", expected at most the ", bytes.size(), " bytes of the body"));
    }
    JsonDocument document;
    if (absl::Status status = document.Parse(bytes.substr(0, header)); !status.ok()) return status;
    InferBody body;
    absl::Status status = ReadInferBody(document.root(), bytes.substr(header), &body);
    if (!status.ok()) return status;
    dst->Clear();
    const std::string_view name = options.signature.empty() ? body.signature : options.signature;
    if (status = SelectSignature(signatures, name, dst); !status.ok()) return status;
    InputPlaces places(*dst->signature);
    dst->feeds.resize(dst->signature->inputs().size());
    FeedArena arena;
    for (const JsonInput& input : body.inputs) {
      if (status = Place(document, input, header, &places, &arena, dst); !status.ok()) return status;
    }
    auto details = std::make_shared<InferJsonDetails>();
    if (status = Finish(body, places.seen(), dst, details.get()); !status.ok()) return status;
    dst->details = std::move(details);
    return absl::OkStatus();
  }

  absl::Status Encode(const DecodedRequest& request, const std::vector<Tensor>& outputs, const ResponseContext& context,
                      Response* dst) const override {
    const auto& details = static_cast<const InferJsonDetails&>(*request.details);
    JsonWriter json;
    if (absl::Status s = json.Reserve(TextOutputs(details, outputs), 0); !s.ok()) return s;
    json.Text("{\"model_name\":").Bytes(AnswerSpec(request, context).name, false).Text(",\"model_version\":\"");
    if (context.model_version) json.Integer(*context.model_version);
    json.Text("\"");
    if (!details.id.empty()) json.Text(",\"id\":").String(details.id);
    json.Text(",\"outputs\":[");
    size_t binary_size = 0;
    bool any_binary = false;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (i > 0) json.Text(",");
      const bool binary = IsBinary(details, i);
      if (absl::Status status = WriteOutput(request, i, outputs[i], binary, &json); !status.ok()) return status;
      any_binary = any_binary || binary;
      if (binary) binary_size += RawSize(outputs[i]);
    }
    json.Text("]}");
    if (!any_binary) return processor::Finish(json, dst);
    const std::string& header = json.text();
    if (absl::Status status = MakeRoom(header.size() + binary_size, &dst->body); !status.ok()) return status;
    std::memcpy(dst->body.data(), header.data(), header.size());
    char* p = dst->body.data() + header.size();
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (IsBinary(details, i)) p = WriteRaw(outputs[i], p);
    }
    dst->header_length = header.size();
    return absl::OkStatus();
  }

 private:
  /// A body without JSON: the value of the only input of a model. What Triton takes as a raw binary request.
  static absl::Status DecodeValue(std::string_view bytes, const SignatureSet& signatures, const RequestOptions& options,
                                  DecodedRequest* dst) {
    dst->Clear();
    if (absl::Status s = SelectSignature(signatures, options.signature, dst); !s.ok()) return s;
    const std::vector<TensorSpec>& inputs = dst->signature->inputs();
    if (inputs.size() != 1) {
      return absl::InvalidArgumentError(absl::StrCat("Inference-Header-Content-Length: 0, and ", inputs.size(),
                                                     " inputs, expected a model with one"));
    }
    dst->feeds.resize(1);
    FeedArena arena;
    if (absl::Status s = ReadValue(inputs[0], kKserveJson, bytes, &arena, &dst->feeds[0]); !s.ok()) return s;
    auto details = std::make_shared<InferJsonDetails>();
    details->binary_outputs = true;
    dst->details = std::move(details);
    return FinishRequest({true}, {}, dst);
  }

  static absl::Status Place(const JsonDocument& document, const JsonInput& input, size_t most, InputPlaces* places,
                            FeedArena* arena, DecodedRequest* dst) {
    int position;
    if (absl::Status status = places->Take(input.name, &position); !status.ok()) return status;
    const TensorSpec& spec = dst->signature->inputs()[position];
    Tensor* const feed = &dst->feeds[position];
    TensorShape shape;
    if (absl::Status s = CheckInput(spec, kKserveJson, input.datatype, input.shape, &shape); !s.ok()) return s;
    if (input.binary) return ReadRaw(spec, *input.binary, shape, arena, feed);
    if (absl::Status s = MakeTensor(spec, kKserveJson, input.shape, most, arena, &shape, feed); !s.ok()) return s;
    JsonFiller filler(spec, document, /*base64=*/false, feed);
    if (absl::Status status = filler.FillFlat(*input.data); !status.ok()) return status;
    if (filler.filled() == shape.num_elements()) return absl::OkStatus();
    return WrongCount(spec, filler.filled(), "data", shape);
  }

  static absl::Status Finish(const InferBody& body, const SeenInputs& seen, DecodedRequest* dst,
                             InferJsonDetails* details) {
    details->id = std::string(body.id);
    details->binary_outputs = body.binary_outputs;
    std::vector<std::string_view> keys;
    for (const JsonOutput& output : body.outputs) keys.push_back(details->keys.emplace_back(output.name));
    absl::Status status = FinishRequestBy({absl::StatusCode::kInvalidArgument}, seen, keys, dst);
    if (!status.ok()) return status;
    // FinishRequest leaves repeated outputs out.
    size_t at = 0;
    for (size_t i = 0; i < keys.size() && at < dst->fetch_keys.size(); ++i) {
      if (dst->fetch_keys[at].data() != keys[i].data()) continue;
      details->binary.push_back(body.outputs[i].binary.value_or(body.binary_outputs));
      ++at;
    }
    return absl::OkStatus();
  }

  static std::vector<Tensor> TextOutputs(const InferJsonDetails& details, const std::vector<Tensor>& outputs) {
    std::vector<Tensor> text;
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (!IsBinary(details, i)) text.push_back(outputs[i]);
    }
    return text;
  }

  static bool IsBinary(const InferJsonDetails& details, size_t i) {
    return i < details.binary.size() ? details.binary[i] : details.binary_outputs;
  }

  static absl::Status WriteOutput(const DecodedRequest& request, size_t i, const Tensor& tensor, bool binary,
                                  JsonWriter* json) {
    const std::string_view name = OutputKey(request, i);
    const std::string_view datatype = DatatypeName(tensor.dtype());
    if (datatype.empty()) return NotInProtocol("output", name, tensor.dtype(), kKserveJson);
    json->Text("{\"name\":").Bytes(name, false).Text(",\"datatype\":\"").Text(datatype).Text("\",\"shape\":[");
    for (int d = 0; d < tensor.dims(); ++d) json->Text(d == 0 ? "" : ",").Integer(tensor.dim_size(d));
    if (binary) {
      json->Text("],\"parameters\":{\"binary_data_size\":").Integer(static_cast<int64_t>(RawSize(tensor))).Text("}}");
      return absl::OkStatus();
    }
    if (!IsText(tensor)) {
      return absl::InvalidArgumentError(
          absl::StrCat("output '", name, "': bytes that are no UTF-8, expected 'binary_data' in the request"));
    }
    json->Text("],\"data\":[").Values(tensor, 0, tensor.NumElements(), false).Text("]}");
    return absl::OkStatus();
  }
};

}  // namespace

const Codec* KserveJsonCodec() {
  static const InferJson codec;
  return &codec;
}

}  // namespace processor
