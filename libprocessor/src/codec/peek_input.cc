// SPDX-License-Identifier: Apache-2.0
// PeekInput for the protocols of messages. What the reader of a request refuses is skipped here: it will be refused.
#include <algorithm>
#include <forward_list>

#include "absl/strings/str_cat.h"
#include "src/codec/codec.h"
#include "src/codec/kserve_messages.h"
#include "src/codec/message_text.h"
#include "src/codec/model_spec.h"
#include "src/codec/peek.h"
#include "src/codec/predict_codec.h"
#include "src/codec/tfserving_input.h"
#include "src/codec/wire.h"

namespace processor {
namespace {

/// Field numbers of the two tensor messages.
struct TensorFields {
  uint32_t content;  // 0: there is none
  uint32_t strings;
  uint32_t numbers;
};

constexpr TensorFields kTensorProto = {4, 8, 10};
constexpr TensorFields kArrayProto = {0, 6, 7};

/// Adds varints, which are packed or one.
bool AddVarints(std::string_view run, KeyCollector* key, bool* same) {
  WireReader reader(run);
  uint64_t value;
  while (!reader.done()) {
    if (!reader.ReadVarint(&value)) return false;
    *same = *same && key->Add(static_cast<int64_t>(value));
  }
  return true;
}

PeekOutcome PeekTensor(std::string_view message, const TensorFields& fields, KeyCollector* key) {
  uint64_t dtype = 0;
  std::string_view content;
  bool same = true;
  bool ok = ForEachField(message, [&](const WireField& field) {
    if (field.number == PredictFields::kTensorDtype && field.type == WireType::kVarint) {
      dtype = FirstVarint(field.payload);
    }
    if (field.number == fields.content && field.type == WireType::kBytes) content = field.payload;
    return true;
  });
  const bool strings = dtype == tensorflow::DT_STRING, numbers = dtype == tensorflow::DT_INT64;
  if (!ok) return PeekOutcome::kMalformed;
  if (!strings && !numbers) return PeekOutcome::kDifferent;
  // As in decoding, content wins over typed values.
  if (numbers && !content.empty()) return key->AddNumbers(content) ? PeekOutcome::kFound : PeekOutcome::kDifferent;
  ok = ForEachField(message, [&](const WireField& field) {
    const bool bytes = field.type == WireType::kBytes;
    if (strings && field.number == fields.strings && bytes) same = same && key->Add(field.payload);
    if (!numbers || field.number != fields.numbers) return true;
    return (!bytes && field.type != WireType::kVarint) || AddVarints(field.payload, key, &same);
  });
  return !ok ? PeekOutcome::kMalformed : same ? PeekOutcome::kFound : PeekOutcome::kDifferent;
}

/// "tfserving" Predict and "eas": a map of inputs, of which the last of that key counts.
PeekOutcome PeekPredict(std::string_view bytes, const TensorFields& fields, std::string_view input_name,
                        KeyCollector* key) {
  std::string_view message;
  bool found = false;
  const bool ok = ForEachField(bytes, [&](const WireField& field) {
    if (field.number != PredictFields::kRequestInputs || field.type != WireType::kBytes) return true;
    std::string_view name, value;
    const bool entry_ok = ForEachField(field.payload, [&](const WireField& inner) {
      if (inner.type != WireType::kBytes) return true;
      if (inner.number == PredictFields::kMapKey) name = inner.payload;
      if (inner.number == PredictFields::kMapValue) value = inner.payload;
      return true;
    });
    if (name == input_name) {
      found = true;
      message = value;
    }
    return entry_ok;
  });
  if (!ok) return PeekOutcome::kMalformed;
  return found ? PeekTensor(message, fields, key) : PeekOutcome::kFound;
}

/// The feature of that name in one tf.Example; its values are all of one list.
bool AddFeature(std::string_view feature, KeyCollector* key, bool* same) {
  constexpr uint32_t kBytesList = 1, kInt64List = 3, kListValue = 1;
  return ForEachField(feature, [&](const WireField& list) {
    if (list.type != WireType::kBytes) return true;
    if (list.number != kBytesList && list.number != kInt64List) {
      *same = false;
      return true;
    }
    return ForEachField(list.payload, [&](const WireField& value) {
      if (value.number != kListValue) return true;
      if (list.number == kInt64List) return AddVarints(value.payload, key, same);
      if (value.type == WireType::kBytes) *same = *same && key->Add(value.payload);
      return true;
    });
  });
}

bool AddExample(std::string_view example, std::string_view input_name, KeyCollector* key, bool* same) {
  constexpr uint32_t kFeatures = 1, kFeature = 1;
  return ForEachField(example, [&](const WireField& features) {
    if (features.number != kFeatures || features.type != WireType::kBytes) return true;
    return ForEachField(features.payload, [&](const WireField& entry) {
      if (entry.number != kFeature || entry.type != WireType::kBytes) return true;
      std::string_view name, value;
      const bool ok = ForEachField(entry.payload, [&](const WireField& inner) {
        if (inner.type != WireType::kBytes) return true;
        if (inner.number == PredictFields::kMapKey) name = inner.payload;
        if (inner.number == PredictFields::kMapValue) value = inner.payload;
        return true;
      });
      return ok && (name != input_name || AddFeature(value, key, same));
    });
  });
}

/// Classify, Regress and MultiInference: a feature of the examples or their context.
PeekOutcome PeekExamples(std::string_view bytes, std::string_view input_name, KeyCollector* key) {
  constexpr uint32_t kInput = 2;
  InputMessage input;
  bool same = true;
  bool ok = ForEachField(bytes, [&](const WireField& field) {
    return field.number != kInput || field.type != WireType::kBytes || input.Read(field.payload);
  });
  ok = ok && AddExample(input.batch().context, input_name, key, &same);
  for (const std::string_view example : input.batch().examples) {
    ok = ok && AddExample(example, input_name, key, &same);
  }
  return !ok ? PeekOutcome::kMalformed : same ? PeekOutcome::kFound : PeekOutcome::kDifferent;
}

struct InferInputView {
  std::string_view name, datatype;
  Payloads contents;
};

bool ReadInferInput(std::string_view message, InferInputView* dst) {
  return ForEachField(message, [dst](const WireField& field) {
    if (field.type != WireType::kBytes) return true;
    if (field.number == InferTensorFields::kName) dst->name = field.payload;
    if (field.number == InferTensorFields::kDatatype) dst->datatype = field.payload;
    if (field.number == InferTensorFields::kContents) dst->contents.push_back(field.payload);
    return true;
  });
}

PeekOutcome PeekInfer(std::string_view bytes, std::string_view input_name, KeyCollector* key) {
  constexpr uint32_t kInt64Contents = 3, kBytesContents = 8;
  Payloads raw;
  InferInputView found;
  size_t inputs = 0, position = 0;
  bool any = false;
  const bool ok = ForEachField(bytes, [&](const WireField& field) {
    if (field.type != WireType::kBytes) return true;
    if (field.number == InferRequestFields::kRawInputContents) raw.push_back(field.payload);
    if (field.number != InferRequestFields::kInputs) return true;
    InferInputView input;
    if (!ReadInferInput(field.payload, &input)) return false;
    if (!any && input.name == input_name) {
      any = true;
      position = inputs;
      found = std::move(input);
    }
    ++inputs;
    return true;
  });
  if (!ok) return PeekOutcome::kMalformed;
  if (!any) return PeekOutcome::kFound;
  const bool strings = found.datatype == "BYTES";
  if (!strings && found.datatype != "INT64") return PeekOutcome::kDifferent;
  if (position < raw.size()) {
    if (strings) return PeekRawStrings(raw[position], key);
    return key->AddNumbers(raw[position]) ? PeekOutcome::kFound : PeekOutcome::kDifferent;
  }
  bool same = true;
  const bool contents_ok = std::all_of(found.contents.begin(), found.contents.end(), [&](std::string_view contents) {
    return ForEachField(contents, [&](const WireField& field) {
      if (strings && field.number == kBytesContents && field.type == WireType::kBytes) {
        same = same && key->Add(field.payload);
      }
      if (strings || field.number != kInt64Contents) return true;
      if (field.type != WireType::kBytes && field.type != WireType::kVarint) return true;
      return AddVarints(field.payload, key, &same);
    });
  });
  return !contents_ok ? PeekOutcome::kMalformed : same ? PeekOutcome::kFound : PeekOutcome::kDifferent;
}

}  // namespace

PeekOutcome PeekRawStrings(std::string_view raw, KeyCollector* key) {
  while (!raw.empty()) {
    uint32_t length;
    if (raw.size() < sizeof(length)) return PeekOutcome::kMalformed;
    std::memcpy(&length, raw.data(), sizeof(length));
    raw.remove_prefix(sizeof(length));
    if (length > raw.size()) return PeekOutcome::kMalformed;
    if (!key->Add(raw.substr(0, length))) return PeekOutcome::kDifferent;
    raw.remove_prefix(length);
  }
  return PeekOutcome::kFound;
}

absl::Status PeekInput(const Method& method, std::string_view bytes, std::string_view input_name, std::string* key,
                       size_t header_length) {
  key->clear();
  if (method.codec == nullptr) {
    return absl::NotFoundError(
        absl::StrCat("input '", Printable(input_name), "': a request of another kind, expected one with inputs"));
  }
  KeyCollector collector(key);
  PeekOutcome outcome = PeekOutcome::kFound;
  const std::string_view protocol = method.protocol;
  if (protocol == "tfserving") {
    outcome = method.name == "Predict" ? PeekPredict(bytes, kTensorProto, input_name, &collector)
                                       : PeekExamples(bytes, input_name, &collector);
  } else if (protocol == "eas") {
    outcome = PeekPredict(bytes, kArrayProto, input_name, &collector);
  } else if (protocol == "kserve") {
    outcome = PeekInfer(bytes, input_name, &collector);
  } else if (protocol == "kserve_json") {
    outcome = PeekInferJson(bytes, header_length, input_name, &collector);
  } else {
    outcome = method.name == "predict" ? PeekPredictJson(bytes, input_name, &collector)
                                       : PeekExamplesJson(bytes, input_name, &collector);
  }
  if (outcome == PeekOutcome::kFound && collector.any()) return absl::OkStatus();
  key->clear();
  if (outcome == PeekOutcome::kMalformed) {
    return absl::InvalidArgumentError(
        absl::StrCat("request: malformed or truncated, expected one of protocol '", protocol, "'"));
  }
  return absl::NotFoundError(absl::StrCat("input '", Printable(input_name), "': ",
                                          outcome == PeekOutcome::kFound ? "none" : "several values or another dtype",
                                          ", expected one string or int64"));
}

}  // namespace processor
