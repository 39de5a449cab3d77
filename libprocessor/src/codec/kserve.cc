// SPDX-License-Identifier: Apache-2.0
// Protocol "kserve", method ModelInfer: the messages of the Open Inference Protocol v2.
//
// Values are in typed fields of each tensor or, all of them, in raw_input_contents, which most clients use; the answer
// is of the same kind. FP16 and BF16 have no typed field: an answer with one of them is raw.
#include <algorithm>
#include <array>
#include <charconv>
#include <forward_list>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "src/codec/input_places.h"
#include "src/codec/kserve_messages.h"
#include "src/codec/kserve_parameters.h"
#include "src/codec/kserve_tensors.h"
#include "src/codec/message_text.h"
#include "src/codec/model_spec.h"
#include "src/codec/protocols.h"
#include "src/codec/tfserving_spec.h"
#include "src/codec/values.h"

namespace processor {
namespace {

using tensorflow::DataType;
using tensorflow::Tensor;
using tensorflow::TensorShape;

using Request = InferRequestFields;
using InferAnswer = InferResponseFields;
using Fields = InferTensorFields;

constexpr const char* kKserve = "kserve";

/// Fields of InferTensorContents.
constexpr ValueLayout IntContents(uint8_t bytes) { return {ValueEncoding::kSigned, 2, bytes, 1, "int_contents"}; }
constexpr ValueLayout Uints(uint8_t bytes) { return {ValueEncoding::kUnsigned, 4, bytes, 1, "uint_contents"}; }

constexpr std::array<ValueLayout, 24> KserveLayouts() {
  std::array<ValueLayout, 24> layouts{};
  layouts[tensorflow::DT_BOOL] = {ValueEncoding::kBool, 1, 1, 1, "bool_contents"};
  layouts[tensorflow::DT_INT8] = IntContents(1);
  layouts[tensorflow::DT_INT16] = IntContents(2);
  layouts[tensorflow::DT_INT32] = IntContents(4);
  layouts[tensorflow::DT_INT64] = {ValueEncoding::kSigned, 3, 8, 1, "int64_contents"};
  layouts[tensorflow::DT_UINT8] = Uints(1);
  layouts[tensorflow::DT_UINT16] = Uints(2);
  layouts[tensorflow::DT_UINT32] = Uints(4);
  layouts[tensorflow::DT_UINT64] = {ValueEncoding::kUnsigned, 5, 8, 1, "uint64_contents"};
  layouts[tensorflow::DT_FLOAT] = {ValueEncoding::kFixed, 6, 4, 1, "fp32_contents"};
  layouts[tensorflow::DT_DOUBLE] = {ValueEncoding::kFixed, 7, 8, 1, "fp64_contents"};
  layouts[tensorflow::DT_STRING] = {ValueEncoding::kBytes, 8, sizeof(tensorflow::tstring), 1, "bytes_contents"};
  return layouts;
}

const ValueLayout& Layout(DataType dtype) {
  static constexpr std::array<ValueLayout, 24> kLayouts = KserveLayouts();
  const auto i = static_cast<size_t>(dtype);
  return kLayouts[i < kLayouts.size() ? i : 0];
}

struct InferDetails : RequestDetails {
  std::string_view id;
  bool raw = false;
};

absl::Status MalformedInfer(std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": malformed or truncated bytes, expected a ModelInferRequest of protocol 'kserve'"));
}

/// The parts of a ModelInferRequest.
struct Parts {
  ModelSpecView spec;
  std::string_view id;
  std::string_view version;
  Payloads inputs, raw, outputs;
  std::forward_list<std::string> memory;
};

/// Which kind of value a parameter has; the one that comes last counts.
bool ReadParameterText(std::string_view message, std::string_view* text, bool* is_text) {
  using Parameter = InferParameterFields;
  *text = {};
  *is_text = true;
  return ForEachField(message, [&](const WireField& field) {
    switch (field.number) {
      case Parameter::kStringParam:
        if (field.type != WireType::kBytes) return true;
        *is_text = true;
        *text = field.payload;
        return true;
      case Parameter::kBoolParam:
      case Parameter::kInt64Param:
      case Parameter::kUint64Param:
        if (field.type == WireType::kVarint) *is_text = false;
        return true;
      case Parameter::kDoubleParam:
        if (field.type == WireType::kFixed64) *is_text = false;
        return true;
      default:
        return true;
    }
  });
}

/// A parameter of the request. Those that the server does not know mean nothing to it.
bool ReadParameter(std::string_view entry, ModelSpecView* spec, bool* is_text, std::forward_list<std::string>* memory) {
  std::string_view key;
  JoinedField value(memory);
  const bool ok = ForEachField(entry, [&](const WireField& field) {
    if (field.type != WireType::kBytes) return true;
    if (field.number == InferParameterFields::kKey) key = field.payload;
    if (field.number == InferParameterFields::kValue) value.Add(field.payload);
    return true;
  });
  if (!ok || key != "signature_name") return ok;
  return ReadParameterText(value.bytes(), &spec->signature, is_text);
}

absl::Status ScanInfer(std::string_view bytes, Parts* dst) {
  bool parameters_ok = true, signature_is_text = true;
  const bool ok = ForEachField(bytes, [&](const WireField& field) {
    if (field.type != WireType::kBytes) return true;
    switch (field.number) {
      case Request::kModelName:
        dst->spec.name = field.payload;
        break;
      case Request::kModelVersion:
        dst->version = field.payload;
        break;
      case Request::kId:
        dst->id = field.payload;
        break;
      case Request::kParameters:
        parameters_ok = parameters_ok && ReadParameter(field.payload, &dst->spec, &signature_is_text, &dst->memory);
        break;
      case Request::kInputs:
        dst->inputs.push_back(field.payload);
        break;
      case Request::kOutputs:
        dst->outputs.push_back(field.payload);
        break;
      case Request::kRawInputContents:
        dst->raw.push_back(field.payload);
        break;
      default:
        break;
    }
    return true;
  });
  if (!ok) return MalformedInfer("request");
  if (!parameters_ok) return MalformedInfer("parameters");
  if (!signature_is_text) {
    return absl::InvalidArgumentError("parameter 'signature_name': no string_param, expected one");
  }
  ReadVersionText(dst->version, &dst->spec);
  return absl::OkStatus();
}

/// Refuses the parameter of a tensor that would be ignored wrongly. What cannot be read is left to others.
absl::Status CheckParameter(std::string_view where, std::string_view entry) {
  std::string_view key;
  const bool ok = ForEachField(entry, [&key](const WireField& field) {
    if (field.number == InferParameterFields::kKey && field.type == WireType::kBytes) key = field.payload;
    return true;
  });
  return ok ? RefuseParameter(where, key) : MalformedInfer("parameters");
}

/// One InferInputTensor, taken apart.
struct InferInput {
  std::string_view name, datatype, contents;
  Dims dims;
  absl::Status parameters;
};

bool ReadOneInput(std::string_view message, InferInput* dst, std::forward_list<std::string>* merged) {
  JoinedField contents(merged);
  const bool ok = ForEachField(message, [&](const WireField& field) {
    if (field.number == Fields::kShape && (field.type == WireType::kBytes || field.type == WireType::kVarint)) {
      WireReader values(field.payload);
      uint64_t value;
      while (!values.done()) {
        if (!values.ReadVarint(&value)) return false;
        AddDim(static_cast<int64_t>(value), &dst->dims);
      }
    }
    if (field.type != WireType::kBytes) return true;
    if (field.number == Fields::kName) dst->name = field.payload;
    if (field.number == Fields::kDatatype) dst->datatype = field.payload;
    if (field.number == Fields::kContents) contents.Add(field.payload);
    if (field.number == Fields::kInputParameters) {
      dst->parameters.Update(CheckParameter("input: parameter", field.payload));
    }
    return true;
  });
  dst->contents = contents.bytes();
  return ok;
}

/// There must be exactly the values that the shape wants, in the field of the datatype.
absl::Status ReadTyped(const TensorSpec& spec, std::string_view contents, const TensorShape& shape, FeedArena* arena,
                       Tensor* dst) {
  const ValueLayout& layout = Layout(spec.dtype);
  if (layout.encoding == ValueEncoding::kNone) {
    return absl::InvalidArgumentError(absl::StrCat("input '", spec.alias, "': contents of ", DatatypeName(spec.dtype),
                                                   ", expected raw_input_contents"));
  }
  ValueFields values;
  WireReader reader(contents);
  WireField field;
  while (!reader.done()) {
    const char* const begin = reader.position();
    if (!reader.Next(&field)) return MalformedInput(spec);
    const int count = 1 + reader.SkipRow(&field);
    if (field.number == layout.field) values.Add(field, count, begin, reader.position());
  }
  const int64_t given = CountScalars(layout, values);
  if (given < 0) return MalformedInput(spec);
  if (given != shape.num_elements()) return WrongCount(spec, given, layout.field_name, shape);
  const size_t text = layout.encoding == ValueEncoding::kBytes ? values.span.size() : 0;
  if (absl::Status s = MakeInput(spec, shape, layout.element_bytes(), text, arena, dst); !s.ok()) return s;
  return ReadScalars(layout, values, given, dst) ? absl::OkStatus() : MalformedInput(spec);
}

/// Whether contents have anything in them; clients that send raw contents may leave fields without values.
bool HasValues(std::string_view contents) {
  constexpr uint32_t kLastNumeric = 7;
  return !ForEachField(contents, [](const WireField& field) {
    return field.number <= kLastNumeric && field.type == WireType::kBytes && field.payload.empty();
  });
}

absl::Status ReadOutputNames(const Payloads& messages, std::vector<std::string_view>* names) {
  for (const std::string_view message : messages) {
    std::string_view name;
    absl::Status parameters;
    const bool ok = ForEachField(message, [&](const WireField& field) {
      if (field.type != WireType::kBytes) return true;
      if (field.number == Fields::kName) name = field.payload;
      if (field.number == Fields::kOutputParameters) {
        parameters.Update(CheckParameter("output: parameter", field.payload));
      }
      return true;
    });
    if (!ok) return MalformedInfer("outputs");
    if (!parameters.ok()) return parameters;
    names->push_back(name);
  }
  return absl::OkStatus();
}

class InferCodec final : public Codec {
 public:
  absl::Status Decode(std::string_view bytes, const SignatureSet& signatures, const RequestOptions& options,
                      DecodedRequest* dst) const override {
    Parts parts;
    if (absl::Status status = ScanInfer(bytes, &parts); !status.ok()) return status;
    *dst = DecodedRequest();
    TakeModel(parts.spec, dst);
    const std::string_view name = options.signature.empty() ? parts.spec.signature : options.signature;
    if (absl::Status status = SelectSignature(signatures, name, dst); !status.ok()) return status;
    const bool raw = !parts.raw.empty();
    if (raw && parts.raw.size() != parts.inputs.size()) {
      return absl::InvalidArgumentError(absl::StrCat(
          "raw_input_contents: ", parts.raw.size(), ", expected one for each ", "of ", parts.inputs.size(), " inputs"));
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
                       return Layout(tensor.dtype()).encoding == ValueEncoding::kNone;
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
  /// Sizes of one output's message, from the inside out. `values`: of the raw contents or of the typed field.
  struct Item {
    std::string_view name, datatype;
    size_t shape, values, contents, message;
  };

  static absl::Status Place(std::string_view message, const std::string_view* raw, const Signature& signature,
                            InputPlaces* places, FeedArena* arena, DecodedRequest* dst) {
    InferInput input;
    std::forward_list<std::string> merged;
    if (!ReadOneInput(message, &input, &merged)) return MalformedInfer("inputs");
    if (!input.parameters.ok()) return input.parameters;
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
    item->values = raw ? RawSize(tensor) : ValuesSize(Layout(tensor.dtype()), tensor);
    item->contents = raw ? 0 : ValueFieldsSize(Layout(tensor.dtype()), item->values);
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
    WriteValues(Layout(tensor.dtype()), tensor, item.values, writer);
  }
};

}  // namespace

const Codec* KserveCodec() {
  static const InferCodec codec;
  return &codec;
}

}  // namespace processor
