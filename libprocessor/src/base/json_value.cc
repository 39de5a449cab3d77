// SPDX-License-Identifier: Apache-2.0
#include "src/base/json_value.h"

#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/base/json_text.h"

namespace processor {
namespace {

// A document with faults that is nested more deeply than this is not even parsed: each level costs memory.
constexpr int kMostDepth = 1000;
constexpr size_t kMaxShown = 100;
constexpr size_t kMaxListShown = 16;

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

// "models.ranking"; the name of a document is empty or ends with ": ", and takes no point.
std::string MemberName(const std::string& object, std::string_view key) {
  const bool top = object.empty() || absl::EndsWith(object, ": ");
  return absl::StrCat(object, top ? "" : ".", ShowKey(key));
}

// Calls of the parser that tell `faults` of keys that are there twice, and leave out what is nested too deeply.
nlohmann::json::parser_callback_t WatchForm(int max_depth, std::vector<JsonFault>* faults) {
  using Event = nlohmann::json::parse_event_t;
  // The objects and lists that are open. The parser does not tell of every end, but says how many are open.
  struct Open {
    std::set<std::string> keys;
    std::string key;
  };
  return [max_depth, faults, open = std::vector<Open>()](int depth, Event event, nlohmann::json& parsed) mutable {
    const auto add_fault = [&](std::string what) {
      JsonFault& fault = faults->emplace_back();
      for (const Open& level : open) {
        if (!level.key.empty()) fault.path.push_back(level.key);
      }
      fault.what = std::move(what);
    };
    if (event == Event::object_start || event == Event::array_start) {
      open.resize(static_cast<size_t>(depth));
      if (depth >= max_depth) {
        add_fault(absl::StrCat("nested deeper than ", max_depth));
        return false;
      }
      open.emplace_back();
    } else if (event == Event::key) {
      open.resize(static_cast<size_t>(depth));
      if (open.empty()) return true;
      open.back().key = parsed.get_ref<const std::string&>();
      if (!open.back().keys.insert(open.back().key).second) {
        add_fault(absl::StrCat("key '", ShowKey(open.back().key), "' twice in one object, expected once"));
      }
    }
    return true;
  };
}

}  // namespace

absl::Status ParseJson(std::string_view name, std::string_view text, nlohmann::json* object,
                       std::vector<JsonFault>* faults, int max_depth) {
  const int most = faults == nullptr ? max_depth : kMostDepth;
  if (Depth(text) > most) return absl::InvalidArgumentError(absl::StrCat(name, ": nested deeper than ", most));
  try {
    *object =
        nlohmann::json::parse(text.begin(), text.end(), faults == nullptr ? nullptr : WatchForm(max_depth, faults));
  } catch (const nlohmann::json::exception& e) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": not JSON: ", e.what()));
  }
  if (!object->is_object()) {
    return absl::InvalidArgumentError(absl::StrCat(name, ": JSON ", object->type_name(), ", expected an object"));
  }
  return absl::OkStatus();
}

bool ReadInteger(const nlohmann::json& value, int64_t low, int64_t high, int64_t* dst) {
  if (!value.is_number_integer()) return false;
  // An unsigned number beyond int64 would wrap.
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) return false;
  const int64_t number = value.get<int64_t>();
  if (number < low || number > high) return false;
  *dst = number;
  return true;
}

bool ReadNumber(const nlohmann::json& value, double low, double high, double* dst) {
  if (!value.is_number()) return false;
  const double number = value.get<double>();
  if (!(number >= low && number <= high)) return false;
  *dst = number;
  return true;
}

std::string ShowJson(const nlohmann::json& value) {
  if (value.is_array() && value.size() > kMaxListShown) return absl::StrCat("a list of ", value.size());
  const std::string text = JsonText(value);
  return text.size() > kMaxShown ? absl::StrCat(text.substr(0, kMaxShown), "...") : text;
}

std::string ShowKey(std::string_view key) {
  return absl::StrCat(absl::Utf8SafeCHexEscape(key.substr(0, kMaxShown)), key.size() > kMaxShown ? "..." : "");
}

const std::string* KnownKeys::FirstUnknown(const nlohmann::json& object) const {
  for (auto item = object.begin(); item != object.end(); ++item) {
    if (std::find(keys_.begin(), keys_.end(), item.key()) == keys_.end()) return &item.key();
  }
  return nullptr;
}

std::string OneOf(const std::vector<std::string>& choices) {
  return absl::StrCat("one of \"", absl::StrJoin(choices, "\", \""), "\"");
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
  AllowOnly(KnownKeys(keys), absl::StrCat("unknown key, expected one of ", absl::StrJoin(keys, ", ")));
}

void JsonValue::Allow(const std::vector<std::string>& keys) const {
  AllowOnly(KnownKeys(keys), absl::StrCat("unknown key, expected one of ", absl::StrJoin(keys, ", ")));
}

void JsonValue::AllowOnly(const KnownKeys& known, std::string_view what) const {
  if (!Readable()) return;
  if (!value_->is_object()) return Refuse("an object");
  const std::string* const key = known.FirstUnknown(*value_);
  if (key != nullptr) *fault_ = absl::InvalidArgumentError(absl::StrCat(MemberName(name_, *key), ": ", what));
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
    visit(Item(i));
  }
}

void JsonValue::List(size_t most) const {
  if (!Readable() || (value_->is_array() && value_->size() <= most)) return;
  Refuse(absl::StrCat("a list of at most ", most));
}

JsonValue JsonValue::Item(size_t i) const { return {absl::StrCat(name_, "[", i, "]"), &(*value_)[i], fault_}; }

void JsonValue::Integer(int64_t low, int64_t high, int64_t* dst) const {
  if (!Readable() || ReadInteger(*value_, low, high, dst)) return;
  Refuse(low == high ? absl::StrCat(low) : absl::StrCat("an integer from ", low, " to ", high));
}

void JsonValue::Integer(int64_t low, int64_t high, int* dst) const {
  int64_t number = *dst;
  Integer(low, high, &number);
  *dst = static_cast<int>(number);
}

void JsonValue::Number(double low, double high, double* dst) const {
  if (!Readable() || ReadNumber(*value_, low, high, dst)) return;
  Refuse(absl::StrCat("a number from ", low, " to ", high));
}

void JsonValue::Boolean(bool* dst) const {
  if (!Readable()) return;
  if (!value_->is_boolean()) return Refuse("true or false");
  *dst = value_->get<bool>();
}

void JsonValue::String(std::string* dst, bool nonempty) const {
  if (!Readable()) return;
  if (!value_->is_string()) return Refuse("a string");
  const auto& text = value_->get_ref<const std::string&>();
  if (text.find('\0') != std::string::npos) return Refuse("a string without NUL");
  if (nonempty && text.empty()) return Refuse("a string that is not empty");
  *dst = text;
}

void JsonValue::Choice(const std::vector<std::string>& choices, int* dst) const {
  if (!Readable()) return;
  const auto found = std::find(choices.begin(), choices.end(), *value_);
  if (found == choices.end()) return Refuse(OneOf(choices));
  *dst = static_cast<int>(found - choices.begin());
}

void JsonValue::Refuse(std::string_view expected) const {
  if (!fault_->ok()) return;
  Fault(absl::StrCat(value_ == nullptr ? "nothing" : ShowJson(*value_), " found, expected ", expected));
}

void JsonValue::Check(const std::function<absl::Status()>& check) const {
  if (!Readable()) return;
  if (const absl::Status status = check(); !status.ok()) Fault(status.message());
}

void JsonValue::Fault(std::string_view what) const {
  if (fault_->ok()) *fault_ = absl::InvalidArgumentError(absl::StrCat(name_, ": ", what));
}

}  // namespace processor
