// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/json_fields.h"

#include <algorithm>
#include <cfloat>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/base/json_value.h"

namespace processor {
namespace {

using Json = nlohmann::json;

constexpr int kMaxDepth = 16;  // plans have six levels
constexpr size_t kMaxBytes = size_t{256} << 20;

const Json& EmptyArray() {
  static const auto* const empty = new Json(Json::array());
  return *empty;
}

}  // namespace

absl::Status ParsePlan(std::string_view text, std::string_view what, Json* object) {
  if (text.size() > kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": ", text.size(), " bytes, expected at most ", kMaxBytes));
  }
  const absl::Status parsed = ParseJson(what, text, object, nullptr, kMaxDepth);
  // The parser quotes the text, which need not be UTF-8, as messages of TensorFlow must be.
  return parsed.ok() ? parsed : absl::InvalidArgumentError(absl::Utf8SafeCHexEscape(parsed.message()));
}

JsonFields::JsonFields(const Json& value, std::string where, absl::Status* status)
    : value_(value), where_(std::move(where)), status_(status) {
  if (!value_.is_object()) Refuse(ShowJson(value_), "an object");
}

const Json* JsonFields::Find(const char* field) {
  known_.push_back(field);
  if (!value_.is_object()) return nullptr;
  const auto it = value_.find(field);
  return it == value_.end() || it->is_null() ? nullptr : &*it;
}

const Json* JsonFields::Require(const char* field, std::string_view expected) {
  const Json* value = Find(field);
  if (value == nullptr) Refuse(absl::StrCat("no '", field, "'"), expected);
  return value;
}

void JsonFields::Refuse(std::string_view found, std::string_view expected) {
  if (status_->ok()) *status_ = absl::InvalidArgumentError(absl::StrCat(where_, ": ", found, ", expected ", expected));
}

void JsonFields::RefuseField(const char* field, std::string_view expected) {
  const Json* value = Find(field);
  Refuse(absl::StrCat("'", field, "' is ", value == nullptr ? "absent" : ShowJson(*value)), expected);
}

int64_t JsonFields::Int(const char* field, int64_t low, int64_t high) {
  int64_t number = low;
  const Json* value = Require(field, "an integer");
  if (value != nullptr && !ReadInteger(*value, low, high, &number)) {
    RefuseField(field, absl::StrCat("an integer from ", low, " to ", high));
  }
  return number;
}

int64_t JsonFields::Int(const char* field, int64_t low, int64_t high, int64_t absent) {
  return Has(field) ? Int(field, low, high) : absent;
}

bool JsonFields::Bool(const char* field, bool absent) {
  const Json* value = Find(field);
  if (value == nullptr) return absent;
  if (!value->is_boolean()) RefuseField(field, "true or false");
  return *value == true;
}

int JsonFields::Choice(const char* field, std::initializer_list<std::string_view> choices, int absent) {
  const Json* value = Find(field);
  if (value == nullptr && absent >= 0) return absent;
  if (value != nullptr && value->is_string()) {
    const auto it = std::find(choices.begin(), choices.end(), value->get_ref<const std::string&>());
    if (it != choices.end()) return static_cast<int>(it - choices.begin());
  }
  RefuseField(field, absl::StrCat("one of ", absl::StrJoin(choices, ", ")));
  return 0;
}

double JsonFields::Double(const char* field, double low, double high, double absent) {
  double number = absent;
  const Json* value = Find(field);
  if (value == nullptr || ReadNumber(*value, low, high, &number)) return number;
  RefuseField(field, absl::StrCat("a number from ", low, " to ", high));
  return low;
}

std::vector<float> JsonFields::Floats(const char* field, size_t most) {
  const Json& array = Array(field, most);
  std::vector<float> numbers;
  numbers.reserve(array.size());
  for (const Json& value : array) numbers.push_back(JsonFloat(value, field, this));
  return numbers;
}

const Json& JsonFields::Array(const char* field, size_t most) {
  const Json* value = Require(field, "an array");
  if (value == nullptr) return EmptyArray();
  if (value->is_array() && value->size() <= most) return *value;
  RefuseField(field, absl::StrCat("an array of at most ", most));
  return EmptyArray();
}

void JsonFields::Finish() {
  if (!status_->ok() || !value_.is_object()) return;
  for (const auto& item : value_.items()) {
    if (std::find(known_.begin(), known_.end(), item.key()) != known_.end()) continue;
    Refuse(absl::StrCat("unknown field '", ShowKey(item.key()), "'"), "those of docs/fused_ops.md");
    return;
  }
}

int64_t JsonInt(const Json& value, int64_t low, int64_t high, std::string_view what, JsonFields* fields) {
  int64_t number = low;
  if (!ReadInteger(value, low, high, &number)) {
    fields->Refuse(absl::StrCat(what, " ", ShowJson(value)), absl::StrCat("an integer from ", low, " to ", high));
  }
  return number;
}

float JsonFloat(const Json& value, std::string_view what, JsonFields* fields) {
  double number = 0;
  if (!ReadNumber(value, -FLT_MAX, FLT_MAX, &number)) {
    fields->Refuse(absl::StrCat(what, " ", ShowJson(value)), "a finite number of 32 bits");
  }
  return static_cast<float>(number);
}

}  // namespace processor
