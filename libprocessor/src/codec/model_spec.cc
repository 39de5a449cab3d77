// SPDX-License-Identifier: Apache-2.0
#include "src/codec/model_spec.h"

#include <cstring>

#include "absl/strings/str_cat.h"
#include "src/codec/wire.h"
#include "tensorflow/core/framework/types.pb.h"

namespace processor {
namespace {

/// Field numbers of ModelSpec, and of Int64Value.
constexpr uint32_t kSpecName = 1;
constexpr uint32_t kSpecVersion = 2;
constexpr uint32_t kSpecSignatureName = 3;
constexpr uint32_t kSpecVersionLabel = 4;
constexpr uint32_t kWrappedValue = 1;

/// Of the predict messages of both protocols: the model or signature, the map of inputs, and its entries.
constexpr uint32_t kRequestHead = 1;
constexpr uint32_t kRequestInputs = 2;
constexpr uint32_t kMapKey = 1;
constexpr uint32_t kMapValue = 2;
constexpr uint32_t kTensorDtype = 1;

/// Where a protocol's tensors keep what an experiment may go by; 0: nowhere.
struct TensorFields {
  uint32_t content, strings, int64s;
};

/// Calls `visit(field)` for every field; false at malformed bytes or as soon as `visit` is false.
template <typename Visit>
bool ForEachField(std::string_view message, Visit&& visit) {
  WireReader reader(message);
  WireField field;
  while (!reader.done()) {
    if (!reader.Next(&field) || !visit(field)) return false;
  }
  return true;
}

bool ReadVersion(std::string_view message, std::optional<int64_t>* version) {
  int64_t value = version->value_or(0);
  const bool ok = ForEachField(message, [&value](const WireField& field) {
    if (field.number == kWrappedValue && field.type == WireType::kVarint) {
      value = static_cast<int64_t>(FirstVarint(field.payload));
    }
    return true;
  });
  *version = value;
  return ok;
}

/// Values that are one as long as all that are added are equal.
class OneValue {
 public:
  /// False once there are two.
  bool Add(std::string_view value) {
    if (!value_.has_value()) value_ = value;
    return *value_ == value;
  }
  const std::optional<std::string>& value() const { return value_; }

 private:
  std::optional<std::string> value_;
};

bool AddInt64s(const WireField& field, OneValue* one) {
  if (field.type != WireType::kBytes && field.type != WireType::kVarint) return true;
  // Packed or not, the payload is a row of varints.
  WireReader values(field.payload);
  uint64_t value = 0;
  while (!values.done()) {
    if (!values.ReadVarint(&value) || !one->Add(absl::StrCat(static_cast<int64_t>(value)))) return false;
  }
  return true;
}

bool AddContent(std::string_view content, OneValue* one) {
  if (content.size() % sizeof(int64_t) != 0) return false;
  for (size_t at = 0; at < content.size(); at += sizeof(int64_t)) {
    int64_t value = 0;
    std::memcpy(&value, content.data() + at, sizeof value);
    if (!one->Add(absl::StrCat(value))) return false;
  }
  return true;
}

std::optional<std::string> OneValueOf(std::string_view tensor, const TensorFields& fields) {
  uint64_t dtype = 0;
  std::string_view content;
  OneValue strings, int64s;
  bool strings_equal = true, int64s_equal = true;
  const bool ok = ForEachField(tensor, [&](const WireField& field) {
    if (field.number == kTensorDtype && field.type == WireType::kVarint) dtype = FirstVarint(field.payload);
    if (fields.content != 0 && field.number == fields.content) content = field.payload;
    if (field.number == fields.strings && field.type == WireType::kBytes) strings_equal &= strings.Add(field.payload);
    if (field.number == fields.int64s) int64s_equal &= AddInt64s(field, &int64s);
    return strings_equal || int64s_equal;
  });
  if (!ok) return std::nullopt;
  if (dtype == tensorflow::DT_STRING && strings_equal) return strings.value();
  if (dtype != tensorflow::DT_INT64) return std::nullopt;
  // As in decoding, content wins over typed values.
  OneValue of_content;
  if (!content.empty()) return AddContent(content, &of_content) ? of_content.value() : std::nullopt;
  return int64s_equal ? int64s.value() : std::nullopt;
}

std::optional<std::string> PeekPredictInput(std::string_view bytes, std::string_view input,
                                            const TensorFields& fields) {
  std::string_view tensor;
  const bool ok = ForEachField(bytes, [&](const WireField& field) {
    if (field.number != kRequestInputs || field.type != WireType::kBytes) return true;
    std::string_view key, value;
    const bool entry_ok = ForEachField(field.payload, [&](const WireField& part) {
      if (part.type == WireType::kBytes && part.number == kMapKey) key = part.payload;
      if (part.type == WireType::kBytes && part.number == kMapValue) value = part.payload;
      return true;
    });
    if (entry_ok && key == input) tensor = value;  // of equal keys the last
    return entry_ok;
  });
  if (!ok || tensor.data() == nullptr) return std::nullopt;
  return OneValueOf(tensor, fields);
}

}  // namespace

bool ReadModelSpec(std::string_view message, ModelSpecView* spec) {
  return ForEachField(message, [spec](const WireField& field) {
    if (field.type != WireType::kBytes) return true;
    switch (field.number) {
      case kSpecName:
        spec->name = field.payload;
        return true;
      case kSpecVersion:
        spec->label = {};
        return ReadVersion(field.payload, &spec->version);
      case kSpecSignatureName:
        spec->signature_name = field.payload;
        return true;
      case kSpecVersionLabel:
        spec->label = field.payload;
        spec->version.reset();
        return true;
      default:
        return true;
    }
  });
}

absl::Status PeekModel(std::string_view protocol, std::string_view, std::string_view bytes, ModelSpecView* spec) {
  *spec = {};
  if (protocol != "tfserving") return absl::OkStatus();
  const bool ok = ForEachField(bytes, [spec](const WireField& field) {
    return field.number != kRequestHead || field.type != WireType::kBytes || ReadModelSpec(field.payload, spec);
  });
  if (ok) return absl::OkStatus();
  return absl::InvalidArgumentError(
      "request: malformed or truncated bytes, expected a PredictRequest of protocol 'tfserving'");
}

std::optional<std::string> PeekInput(std::string_view protocol, std::string_view, std::string_view bytes,
                                     std::string_view input) {
  if (protocol == "tfserving") return PeekPredictInput(bytes, input, {4, 8, 10});
  if (protocol == "eas") return PeekPredictInput(bytes, input, {0, 6, 7});
  return std::nullopt;
}

}  // namespace processor
