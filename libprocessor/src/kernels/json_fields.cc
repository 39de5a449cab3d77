// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/json_fields.h"

#include <algorithm>
#include <cfloat>
#include <cmath>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace processor {
namespace {

using Json = nlohmann::json;

// Plans have six levels. Copying and printing a value take stack for each.
constexpr int kMaxDepth = 16;
constexpr size_t kMaxBytes = size_t{256} << 20;

std::string Show(const Json& value) {
  if (value.is_array() && value.size() > 16) return absl::StrCat("an array of ", value.size());
  if (value.is_object()) return "an object";
  const std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  return text.size() > 100 ? absl::StrCat(text.substr(0, 100), "...") : text;
}

bool ReadInt(const Json& value, int64_t low, int64_t high, int64_t* number) {
  if (!value.is_number_integer()) return false;
  // An unsigned number beyond int64 would wrap.
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return false;
  *number = value.get<int64_t>();
  return *number >= low && *number <= high;
}

bool ReadFloat(const Json& value, float* number) {
  if (!value.is_number()) return false;
  const double wide = value.get<double>();
  if (!(std::fabs(wide) <= FLT_MAX)) return false;
  *number = static_cast<float>(wide);
  return true;
}

const Json& EmptyArray() {
  static const auto* const empty = new Json(Json::array());
  return *empty;
}

}  // namespace

absl::Status ParseJsonObject(std::string_view text, std::string_view what, Json* object) {
  if (text.size() > kMaxBytes) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": ", text.size(), " bytes, expected at most ", kMaxBytes));
  }
  bool too_deep = false;
  const auto watch_depth = [&](int depth, Json::parse_event_t, Json&) {
    too_deep = too_deep || depth > kMaxDepth;
    return !too_deep;
  };
  try {
    *object = Json::parse(text.begin(), text.end(), watch_depth);
  } catch (const Json::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": not JSON: ", absl::Utf8SafeCHexEscape(e.what())));
  }
  if (too_deep) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": nested deeper than ", kMaxDepth, ", expected less"));
  }
  if (!object->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": JSON ", object->type_name(), ", expected an object"));
  }
  return absl::OkStatus();
}

JsonFields::JsonFields(const Json& value, std::string where, absl::Status* status)
    : value_(value), where_(std::move(where)), status_(status) {
  if (!value_.is_object()) Refuse(Show(value_), "an object");
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
  Refuse(absl::StrCat("'", field, "' is ", value == nullptr ? "absent" : Show(*value)), expected);
}

int64_t JsonFields::Int(const char* field, int64_t low, int64_t high) {
  int64_t number = low;
  const Json* value = Require(field, "an integer");
  if (value == nullptr) return low;
  if (ReadInt(*value, low, high, &number)) return number;
  RefuseField(field, absl::StrCat("an integer from ", low, " to ", high));
  return low;
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
  const Json* value = Find(field);
  if (value == nullptr) return absent;
  const double number = value->is_number() ? value->get<double>() : NAN;
  if (number >= low && number <= high) return number;
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

std::string JsonFields::String(const char* field, std::string_view absent) {
  const Json* value = Find(field);
  if (value == nullptr) return std::string(absent);
  if (value->is_string()) return value->get<std::string>();
  RefuseField(field, "a string");
  return std::string(absent);
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
    Refuse(absl::StrCat("unknown field '", absl::Utf8SafeCHexEscape(item.key()).substr(0, 100), "'"),
           "those of docs/fused_ops.md");
    return;
  }
}

int64_t JsonInt(const Json& value, int64_t low, int64_t high, std::string_view what, JsonFields* fields) {
  int64_t number = low;
  if (ReadInt(value, low, high, &number)) return number;
  fields->Refuse(absl::StrCat(what, " ", Show(value)), absl::StrCat("an integer from ", low, " to ", high));
  return low;
}

float JsonFloat(const Json& value, std::string_view what, JsonFields* fields) {
  float number = 0;
  if (ReadFloat(value, &number)) return number;
  fields->Refuse(absl::StrCat(what, " ", Show(value)), "a finite number of 32 bits");
  return 0;
}

}  // namespace processor
