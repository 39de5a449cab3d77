// SPDX-License-Identifier: Apache-2.0
// Protocol "kserve", method ModelInfer: the messages of the Open Inference Protocol v2.
//
// Values are either in typed fields of each tensor or in raw_input_contents, which most clients use; the response has the
// same form. FP16 and BF16 have no typed field, so a response with one of them is raw.
#include <algorithm>
#include <forward_list>

#include "absl/strings/str_cat.h"
#include "src/codec/input_places.h"
#include "src/codec/kserve_messages.h"
#include "src/codec/kserve_request.h"
#include "src/codec/kserve_tensors.h"
#include "src/codec/message_text.h"
#include "src/codec/protocols.h"
#include "src/codec/tfserving_spec.h"
#include "src/codec/values.h"

namespace processor {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;

using InferAnswer = InferResponseFields;
using Fields = InferTensorFields;

constexpr const char* kKserve = "kserve";

struct InferDetails : RequestDetails {
  std::string_view id;
  bool raw = false;
};

class InferCodec final : public Codec {
 public:
  absl::Status Decode(std::string_view bytes, const SignatureSet& signatures, const RequestOptions& options,
                      DecodedRequest* dst) const override {
    InferRequest parts;
    if (absl::Status status = ReadInferRequest(bytes, &parts); !status.ok()) return status;
    dst->Clear();
    SetModel(parts.spec, dst);
    const std::string_view name = options.signature.empty() ? parts.spec.signature : options.signature;
    if (absl::Status status = SelectSignature(signatures, name, dst); !status.ok()) return status;
    const bool raw = !parts.raw.empty();
    if (raw && parts.raw.size() != parts.inputs.size()) {
      return absl::InvalidArgumentError(absl::StrCat("raw_input_contents: ", parts.raw.size(),
                                                     ", expected one for each of ", parts.inputs.size(), " inputs"));
    }
    InputPlaces places(*dst->signature);
    dst->feeds.resize(dst->signature->inputs().size());
    FeedArena arena;
    for (size_t i = 0; i < parts.inputs.size(); ++i) {
      absl::Status status =
          Place(parts.inputs[i], raw ? &parts.raw[i] : nullptr, *dst->signature, &places, &arena, dst);
      if (!status.ok()) return status;
    }
    std::vector<std::string_view> outputs;
    if (absl::Status status = ReadOutputNames(parts.outputs, &outputs); !status.ok()) return status;
    auto details = std::make_shared<InferDetails>();
    details->id = parts.id;
    details->raw = raw;
    dst->details = std::move(details);
    return FinishRequestBy({absl::StatusCode::kInvalidArgument}, places.seen(), outputs, dst);
  }

  absl::Status Encode(const DecodedRequest& request, const std::vector<Tensor>& outputs, const ResponseContext& context,
                      Response* dst) const override {
    const auto& details = static_cast<const InferDetails&>(*request.details);
    const bool raw = details.raw || std::any_of(outputs.begin(), outputs.end(), [](const Tensor& tensor) {
                       return KserveLayout(tensor.dtype()).encoding == ValueEncoding::kNone;
                     });
    const std::string_view model = AnswerSpec(request, context).name;
    const std::string version = context.model_version ? absl::StrCat(*context.model_version) : "";
    size_t total = 0;
    const auto text_size = [](uint32_t number, std::string_view text) {
      return text.empty() ? 0 : BytesFieldSize(number, text.size());
    };
    total += text_size(InferAnswer::kModelName, model) + text_size(InferAnswer::kModelVersion, version) +
             text_size(InferAnswer::kId, details.id);
    absl::InlinedVector<Item, 8> items(outputs.size());
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (absl::Status status = Measure(request, i, outputs[i], raw, &items[i]); !status.ok()) return status;
      total += BytesFieldSize(InferAnswer::kOutputs, items[i].message);
      if (raw) total += BytesFieldSize(InferAnswer::kRawOutputContents, items[i].values);
    }
    if (absl::Status status = MakeRoom(total, &dst->body); !status.ok()) return status;
    WireWriter writer(dst->body.data());
    const auto write_text = [&writer](uint32_t number, std::string_view text) {
      if (!text.empty()) writer.BytesField(number, text);
    };
    write_text(InferAnswer::kModelName, model);
    write_text(InferAnswer::kModelVersion, version);
    write_text(InferAnswer::kId, details.id);
    for (size_t i = 0; i < outputs.size(); ++i) Write(items[i], outputs[i], raw, &writer);
    if (!raw) return absl::OkStatus();
    for (size_t i = 0; i < outputs.size(); ++i) {
      writer.BytesHeader(InferAnswer::kRawOutputContents, items[i].values);
      writer = WireWriter(WriteRaw(outputs[i], writer.position()));
    }
    return absl::OkStatus();
  }

 private:
  /// The sizes of one output's message, from the inside out. `values`: of the raw contents or of the typed field.
  struct Item {
    std::string_view name, datatype;
    size_t shape, values, contents, message;
  };

  static absl::Status Place(std::string_view message, const std::string_view* raw, const Signature& signature,
                            InputPlaces* places, FeedArena* arena, DecodedRequest* dst) {
    InferInput input;
    std::forward_list<std::string> merged;
    if (absl::Status status = ReadInferInput(message, &input, &merged); !status.ok()) return status;
    int position;
    if (absl::Status status = places->Take(input.name, &position); !status.ok()) return status;
    const TensorSpec& spec = signature.inputs()[position];
    TensorShape shape;
    if (absl::Status status = CheckInput(spec, kKserve, input.datatype, input.dims, &shape); !status.ok())
      return status;
    Tensor* const feed = &dst->feeds[position];
    if (raw == nullptr) return ReadTyped(spec, input.contents, shape, arena, feed);
    if (HasValues(input.contents)) {
      return absl::InvalidArgumentError(
          absl::StrCat("input '", spec.alias, "': contents beside raw_input_contents, expected one of them"));
    }
    return ReadRaw(spec, *raw, shape, arena, feed);
  }

  static absl::Status Measure(const DecodedRequest& request, size_t i, const Tensor& tensor, bool raw, Item* item) {
    item->name = OutputKey(request, i);
    item->datatype = DatatypeName(tensor.dtype());
    if (item->datatype.empty()) return NotInProtocol("output", item->name, tensor.dtype(), kKserve);
    item->shape = 0;
    for (int d = 0; d < tensor.dims(); ++d) item->shape += VarintSize(static_cast<uint64_t>(tensor.dim_size(d)));
    item->values = raw ? RawSize(tensor) : ValuesSize(KserveLayout(tensor.dtype()), tensor);
    item->contents = raw ? 0 : ValueFieldsSize(KserveLayout(tensor.dtype()), item->values);
    item->message =
        BytesFieldSize(Fields::kName, item->name.size()) + BytesFieldSize(Fields::kDatatype, item->datatype.size());
    if (item->shape > 0) item->message += BytesFieldSize(Fields::kShape, item->shape);
    if (!raw) item->message += BytesFieldSize(Fields::kContents, item->contents);
    return absl::OkStatus();
  }

  static void Write(const Item& item, const Tensor& tensor, bool raw, WireWriter* writer) {
    writer->BytesHeader(InferAnswer::kOutputs, item.message);
    writer->BytesField(Fields::kName, item.name);
    writer->BytesField(Fields::kDatatype, item.datatype);
    if (item.shape > 0) {
      writer->BytesHeader(Fields::kShape, item.shape);
      for (int d = 0; d < tensor.dims(); ++d) writer->Varint(static_cast<uint64_t>(tensor.dim_size(d)));
    }
    if (raw) return;
    writer->BytesHeader(Fields::kContents, item.contents);
    WriteValues(KserveLayout(tensor.dtype()), tensor, item.values, writer);
  }
};

}  // namespace

const Codec* KserveCodec() {
  static const InferCodec codec;
  return &codec;
}

}  // namespace processor
