// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/json_fields.h"

#include <algorithm>
#include <cfloat>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace processor {
namespace {

constexpr int kMaxDepth = 16;  // plans have six levels
constexpr size_t kMaxBytes = size_t{256} << 20;

}  // namespace

absl::Status ParsePlan(std::string_view text, std::string_view what, nlohmann::json* object) {
  if (text.size() > kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": ", text.size(), " bytes, expected at most ", kMaxBytes));
  }
  const absl::Status parsed = ParseJson(what, text, object, nullptr, kMaxDepth);
  // The parser quotes the text, which need not be UTF-8, as messages of TensorFlow must be.
  return parsed.ok() ? parsed : absl::InvalidArgumentError(absl::Utf8SafeCHexEscape(parsed.message()));
}

JsonValue JsonFields::Field(const char* field) {
  known_.Add(field);
  return object_.Member(field);
}

JsonValue JsonFields::Required(const char* field, std::string_view expected) {
  known_.Add(field);
  return object_.Required(field, expected);
}

int64_t JsonFields::Int(const char* field, int64_t low, int64_t high) {
  int64_t number = low;
  Required(field, "an integer").Integer(low, high, &number);
  return number;
}

int64_t JsonFields::Int(const char* field, int64_t low, int64_t high, int64_t absent) {
  return Has(field) ? Int(field, low, high) : absent;
}

bool JsonFields::Bool(const char* field, bool absent) {
  bool value = absent;
  Field(field).Boolean(&value);
  return value;
}

int JsonFields::Choice(const char* field, const std::vector<std::string>& choices, int absent) {
  int position = std::max(absent, 0);
  const JsonValue value = Field(field);
  if (absent < 0 && !value.present()) Required(field, OneOf(choices));
  value.Choice(choices, &position);
  return position;
}

double JsonFields::Number(const char* field, double low, double high, double absent) {
  const JsonValue value = Field(field);
  double number = value.present() ? low : absent;
  value.Number(low, high, &number);
  return number;
}

std::vector<float> JsonFields::Floats(const char* field, size_t most) {
  std::vector<float> numbers;
  const JsonValue list = List(field, most);
  numbers.reserve(list.size());
  AppendFloats(list, &numbers);
  return numbers;
}

JsonValue JsonFields::List(const char* field, size_t most) {
  const JsonValue list = Required(field, "a list");
  list.List(most);
  return list;
}

void JsonFields::Refuse(std::string_view found, std::string_view expected) {
  object_.Fault(absl::StrCat(found, ", expected ", expected));
}

void JsonFields::Finish() { object_.AllowOnly(known_, "unknown field, expected those of docs/fused_ops.md"); }

int64_t IntItem(const JsonValue& item, int64_t low, int64_t high) {
  int64_t number = low;
  item.Integer(low, high, &number);
  return number;
}

void AppendFloats(const JsonValue& list, std::vector<float>* dst) {
  const size_t size = list.size();
  for (size_t i = 0; i < size; ++i) {
    double number = 0;
    if (!ReadNumber(list.json()[i], -FLT_MAX, FLT_MAX, &number)) {
      return list.Item(i).Refuse("a finite number of 32 bits");
    }
    dst->push_back(static_cast<float>(number));
  }
}

}  // namespace processor
