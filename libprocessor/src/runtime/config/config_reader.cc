// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/config/config_reader.h"

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace processor {
namespace {

// Copying and printing a value take stack for each level of it.
constexpr int kMaxConfigDepth = 32;

}  // namespace

absl::Status ConfigReader::Parse(std::string_view text) {
  bool too_deep = false;
  const auto watch_depth = [&](int depth, nlohmann::json::parse_event_t, nlohmann::json&) {
    too_deep = too_deep || depth > kMaxConfigDepth;
    return !too_deep;
  };
  try {
    object_ = nlohmann::json::parse(text.begin(), text.end(), watch_depth);
  } catch (const nlohmann::json::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat("config: not JSON: ", e.what()));
  }
  if (too_deep) {
    return absl::InvalidArgumentError(
        absl::StrCat("config: nested deeper than ", kMaxConfigDepth, ", expected a flat object"));
  }
  if (!object_.is_object()) {
    return absl::InvalidArgumentError(absl::StrCat("config: JSON ", object_.type_name(), ", expected an object"));
  }
  return absl::OkStatus();
}

const nlohmann::json* ConfigReader::Get(const std::string& key) {
  known_.insert(key);
  const auto it = object_.find(key);
  return it == object_.end() || it->is_null() ? nullptr : &*it;
}

bool ConfigReader::Has(const std::string& key) { return Get(key) != nullptr; }

std::string ConfigReader::Show(const std::string& key) const {
  const auto it = object_.find(key);
  if (it == object_.end()) return "nothing";
  return it->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace).substr(0, 200);
}

void ConfigReader::Refuse(const std::string& key, std::string_view why) {
  known_.insert(key);
  if (status_.ok()) status_ = absl::InvalidArgumentError(absl::StrCat("config key '", key, "': ", why));
}

void ConfigReader::Notice(const std::string& key, std::string_view why) {
  notices_.push_back(absl::StrCat("config key '", key, "': accepted without effect: ", why));
}

void ConfigReader::WrongType(const std::string& key, std::string_view expected) {
  Refuse(key, absl::StrCat(Show(key), " found, expected ", expected));
}

void ConfigReader::Int64(const std::string& key, int64_t low, int64_t high, int64_t* dst) {
  const nlohmann::json* value = Get(key);
  if (value == nullptr) return;
  const std::string expected = absl::StrCat("an integer from ", low, " to ", high);
  if (!value->is_number_integer()) return WrongType(key, expected);
  // An unsigned number beyond int64 would wrap.
  if (value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    return WrongType(key, expected);
  }
  const int64_t number = value->get<int64_t>();
  if (number < low || number > high) return WrongType(key, expected);
  *dst = number;
}

void ConfigReader::Int(const std::string& key, int64_t low, int64_t high, int* dst) {
  int64_t number = *dst;
  Int64(key, low, high, &number);
  *dst = static_cast<int>(number);
}

void ConfigReader::Double(const std::string& key, double low, double high, double* dst) {
  const nlohmann::json* value = Get(key);
  if (value == nullptr) return;
  if (!value->is_number() || !(value->get<double>() >= low && value->get<double>() <= high)) {
    return WrongType(key, absl::StrCat("a number from ", low, " to ", high));
  }
  *dst = value->get<double>();
}

void ConfigReader::Bool(const std::string& key, bool* dst) {
  const nlohmann::json* value = Get(key);
  if (value == nullptr) return;
  if (value->is_boolean()) {
    *dst = value->get<bool>();
  } else if (value->is_number_integer() && (*value == 0 || *value == 1)) {
    *dst = *value == 1;
  } else {
    WrongType(key, "true or false");
  }
}

void ConfigReader::String(const std::string& key, std::string* dst) {
  const nlohmann::json* value = Get(key);
  if (value == nullptr) return;
  if (!value->is_string()) return WrongType(key, "a string");
  *dst = value->get<std::string>();
  if (dst->find('\0') != std::string::npos) WrongType(key, "a string without NUL");
}

void ConfigReader::Choice(const std::string& key, const std::vector<std::string>& choices, int* dst) {
  if (!Has(key)) return;
  std::string text;
  String(key, &text);
  for (size_t i = 0; i < choices.size(); ++i) {
    if (text == choices[i]) {
      *dst = static_cast<int>(i);
      return;
    }
  }
  WrongType(key, absl::StrCat("one of \"", absl::StrJoin(choices, "\", \""), "\""));
}

void ConfigReader::Require(const std::string& key) {
  if (!Has(key) && status_.ok()) {
    status_ = absl::NotFoundError(absl::StrCat("config key '", key, "': missing, expected by the drop-in contract"));
  }
}

void ConfigReader::RequireNonEmpty(const std::string& key) {
  Require(key);
  const nlohmann::json* value = Get(key);
  if (value != nullptr && value->is_string() && value->get_ref<const std::string&>().empty()) {
    Refuse(key, "empty, expected a value");
  }
}

absl::Status ConfigReader::Finish() {
  if (!status_.ok()) return status_;
  for (const auto& item : object_.items()) {
    if (known_.count(item.key()) == 0) {
      return absl::InvalidArgumentError(absl::StrCat("config key '",
                                                     absl::Utf8SafeCHexEscape(item.key()).substr(0, 200),
                                                     "': unknown; docs/configuration.md lists the keys"));
    }
  }
  return absl::OkStatus();
}

}  // namespace processor
