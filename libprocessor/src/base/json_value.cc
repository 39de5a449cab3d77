// SPDX-License-Identifier: Apache-2.0
#include "src/base/json_value.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace processor {
namespace {

// Copying and printing a value take stack for each level of it.
constexpr int kMaxDepth = 32;
// What is nested more deeply than this is not even parsed: it costs memory for each level.
constexpr int kMostDepth = 1000;
constexpr size_t kMaxShown = 100;

std::string Shown(std::string_view text) {
  const std::string escaped = absl::Utf8SafeCHexEscape(text.substr(0, kMaxShown));
  return text.size() > kMaxShown ? absl::StrCat(escaped, "...") : escaped;
}

// How many objects and lists are open at once, at most.
int Depth(std::string_view text) {
  int depth = 0, deepest = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted && c == '\\') {
      ++i;
    } else if (c == '"') {
      quoted = !quoted;
    } else if (!quoted && (c == '{' || c == '[')) {
      deepest = std::max(deepest, ++depth);
    } else if (!quoted && (c == '}' || c == ']')) {
      --depth;
    }
  }
  return deepest;
}

// "models.ranking"; the name of the document ends with ": " and takes no point.
std::string MemberName(const std::string& object, std::string_view key) {
  const bool top = object.size() >= 2 && object.compare(object.size() - 2, 2, ": ") == 0;
  return absl::StrCat(object, top ? "" : ".", Shown(key));
}

}  // namespace

absl::Status ParseJson(std::string_view name, std::string_view text, nlohmann::json* object,
                       std::vector<JsonFault>* faults) {
  if (Depth(text) > kMostDepth)
    return absl::InvalidArgumentError(absl::StrCat(name, ": nested deeper than ", kMostDepth));
  using Event = nlohmann::json::parse_event_t;
  // The objects and lists that are open. The parser does not tell of every end, but says how many are open.
  struct Open {
    std::set<std::string> keys;
    std::string key;
  };
  std::vector<Open> open;
  const auto fault = [&](std::string what) {
    JsonFault& made = faults->emplace_back();
    for (const Open& one : open) {
      if (!one.key.empty()) made.path.push_back(one.key);
    }
    made.what = std::move(what);
  };
  const auto watch = [&](int depth, Event event, nlohmann::json& parsed) {
    if (event == Event::object_start || event == Event::array_start) {
      open.resize(static_cast<size_t>(depth));
      if (depth >= kMaxDepth) {
        fault(absl::StrCat("nested deeper than ", kMaxDepth));
        return false;
      }
      open.emplace_back();
    } else if (event == Event::key) {
      open.resize(static_cast<size_t>(depth));
      if (open.empty()) return true;
      open.back().key = parsed.get_ref<const std::string&>();
      if (!open.back().keys.insert(open.back().key).second) {
        fault(absl::StrCat("key '", Shown(open.back().key), "' twice in one object, expected once"));
      }
    }
    return true;
  };
  try {
    *object = nlohmann::json::parse(text.begin(), text.end(), watch);
  } catch (const nlohmann::json::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": not JSON: ", e.what()));
  }
  if (!object->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": JSON ", object->type_name(), ", expected an object"));
  }
  return absl::OkStatus();
}

JsonValue JsonValue::Member(const std::string& key) const {
  std::string name = MemberName(name_, key);
  if (!Readable()) return {std::move(name), nullptr, fault_};
  if (!value_->is_object()) {
    Refuse("an object");
    return {std::move(name), nullptr, fault_};
  }
  const auto found = value_->find(key);
  const bool absent = found == value_->end() || found->is_null();
  return {std::move(name), absent ? nullptr : &*found, fault_};
}

JsonValue JsonValue::Required(const std::string& key, std::string_view expected) const {
  JsonValue member = Member(key);
  if (Readable() && !member.present()) member.Fault(absl::StrCat("missing, expected ", expected));
  return member;
}

void JsonValue::Allow(std::initializer_list<std::string_view> keys) const {
  if (!Readable()) return;
  if (!value_->is_object()) return Refuse("an object");
  for (const auto& item : value_->items()) {
    if (std::find(keys.begin(), keys.end(), item.key()) == keys.end() && fault_->ok()) {
      std::string known;
      for (std::string_view key : keys) absl::StrAppend(&known, known.empty() ? "" : ", ", key);
      *fault_ = absl::InvalidArgumentError(
          absl::StrCat(MemberName(name_, item.key()), ": unknown key, expected one of ", known));
    }
  }
}

void JsonValue::ForEachMember(const std::function<void(const std::string&, const JsonValue&)>& visit) const {
  if (!Readable()) return;
  if (!value_->is_object()) return Refuse("an object");
  for (const auto& item : value_->items()) {
    if (!fault_->ok()) return;
    visit(item.key(),
          JsonValue(MemberName(name_, item.key()), item.value().is_null() ? nullptr : &item.value(), fault_));
  }
}

void JsonValue::ForEachItem(const std::function<void(const JsonValue&)>& visit) const {
  if (!Readable()) return;
  if (!value_->is_array()) return Refuse("a list");
  for (size_t i = 0; i < value_->size() && fault_->ok(); ++i) {
    visit(JsonValue(absl::StrCat(name_, "[", i, "]"), &(*value_)[i], fault_));
  }
}

void JsonValue::Integer(int64_t low, int64_t high, int64_t* dst) const {
  if (!Readable()) return;
  // An unsigned number beyond int64 would wrap.
  const bool fits = value_->is_number_integer() &&
                    !(value_->is_number_unsigned() && value_->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX));
  const int64_t number = fits ? value_->get<int64_t>() : 0;
  if (!fits || number < low || number > high) return Refuse(absl::StrCat("an integer from ", low, " to ", high));
  *dst = number;
}

void JsonValue::Integer(int64_t low, int64_t high, int* dst) const {
  int64_t number = *dst;
  Integer(low, high, &number);
  *dst = static_cast<int>(number);
}

void JsonValue::Number(double low, double high, double* dst) const {
  if (!Readable()) return;
  const double number = value_->is_number() ? value_->get<double>() : 0;
  // Written so that NaN is refused too.
  if (!value_->is_number() || !(number >= low && number <= high)) {
    return Refuse(absl::StrCat("a number from ", low, " to ", high));
  }
  *dst = number;
}

void JsonValue::Boolean(bool* dst) const {
  if (!Readable()) return;
  if (!value_->is_boolean()) return Refuse("true or false");
  *dst = value_->get<bool>();
}

void JsonValue::String(std::string* dst, bool nonempty) const {
  if (!Readable()) return;
  const char* const expected = nonempty ? "a string that is not empty" : "a string without NUL";
  if (!value_->is_string()) return Refuse("a string");
  const auto& text = value_->get_ref<const std::string&>();
  if (text.find('\0') != std::string::npos || (nonempty && text.empty())) return Refuse(expected);
  *dst = text;
}

void JsonValue::Refuse(std::string_view expected) const {
  if (!fault_->ok()) return;
  const std::string text =
      value_ == nullptr ? "nothing" : value_->dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
  const std::string shown = text.size() > kMaxShown ? absl::StrCat(text.substr(0, kMaxShown), "...") : text;
  Fault(absl::StrCat(shown, " found, expected ", expected));
}

void JsonValue::Check(const std::function<absl::Status()>& check) const {
  if (!Readable()) return;
  if (const absl::Status status = check(); !status.ok()) Fault(status.message());
}

void JsonValue::Fault(std::string_view what) const {
  if (fault_->ok()) *fault_ = absl::InvalidArgumentError(absl::StrCat(name_, ": ", what));
}

}  // namespace processor
