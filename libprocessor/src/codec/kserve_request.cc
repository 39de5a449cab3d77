// SPDX-License-Identifier: Apache-2.0
#include "src/codec/kserve_request.h"

#include "absl/strings/str_cat.h"
#include "src/codec/kserve_messages.h"
#include "src/codec/kserve_parameters.h"
#include "src/codec/wire.h"

namespace processor {
namespace {

using Request = InferRequestFields;
using InputFields = InferTensorFields;

absl::Status MalformedInfer(std::string_view what) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": malformed or truncated bytes, expected a ModelInferRequest of protocol 'kserve'"));
}

/// Reads the text of a parameter, or that it is of another kind; the last value counts.
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

/// Reads a parameter of the request; unknown ones are ignored.
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

/// Refuses a parameter of a tensor that must not be ignored.
absl::Status CheckParameter(std::string_view where, std::string_view entry) {
  std::string_view key;
  const bool ok = ForEachField(entry, [&key](const WireField& field) {
    if (field.number == InferParameterFields::kKey && field.type == WireType::kBytes) key = field.payload;
    return true;
  });
  return ok ? RefuseParameter(where, key) : MalformedInfer("parameters");
}

}  // namespace

absl::Status ReadInferRequest(std::string_view bytes, InferRequest* dst) {
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

absl::Status ReadInferInput(std::string_view message, InferInput* dst, std::forward_list<std::string>* memory) {
  JoinedField contents(memory);
  absl::Status parameters;
  const bool ok = ForEachField(message, [&](const WireField& field) {
    if (field.number == InputFields::kShape && (field.type == WireType::kBytes || field.type == WireType::kVarint)) {
      WireReader values(field.payload);
      uint64_t value;
      while (!values.done()) {
        if (!values.ReadVarint(&value)) return false;
        AddDim(static_cast<int64_t>(value), &dst->dims);
      }
    }
    if (field.type != WireType::kBytes) return true;
    if (field.number == InputFields::kName) dst->name = field.payload;
    if (field.number == InputFields::kDatatype) dst->datatype = field.payload;
    if (field.number == InputFields::kContents) contents.Add(field.payload);
    if (field.number == InputFields::kInputParameters) {
      parameters.Update(CheckParameter("input: parameter", field.payload));
    }
    return true;
  });
  dst->contents = contents.bytes();
  return ok ? parameters : MalformedInfer("inputs");
}

absl::Status ReadOutputNames(const Payloads& messages, std::vector<std::string_view>* names) {
  for (const std::string_view message : messages) {
    std::string_view name;
    absl::Status parameters;
    const bool ok = ForEachField(message, [&](const WireField& field) {
      if (field.type != WireType::kBytes) return true;
      if (field.number == InputFields::kName) name = field.payload;
      if (field.number == InputFields::kOutputParameters) {
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

}  // namespace processor
