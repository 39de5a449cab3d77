// SPDX-License-Identifier: Apache-2.0
// The one strict reader of JSON that is not a request: desired.json, records, configurations and the plans of ops. What it
// owns is used by one thread.
#ifndef PROCESSOR_BASE_JSON_VALUE_H_
#define PROCESSOR_BASE_JSON_VALUE_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace processor {

/// A fault in the form of a document at one place; the rest of the document can be read.
struct JsonFault {
  std::vector<std::string> path;  // keys from the top; a fault in a list has the path of the list
  std::string what;
};

/// The default limit of nesting: copying and printing a document take stack for each level.
constexpr int kMaxJsonDepth = 32;

/// Parses a text that is one JSON object.
///
/// Without `faults`, nesting deeper than `max_depth` is refused, and the last of equal keys counts. With `faults`, both
/// are recorded there, and values that are nested too deeply are left out.
/// \return INVALID_ARGUMENT that begins with `name` if the text is not a JSON object.
absl::Status ParseJson(std::string_view name, std::string_view text, nlohmann::json* object,
                       std::vector<JsonFault>* faults = nullptr, int max_depth = kMaxJsonDepth);

/// Reads an integer in [low, high]. Returns false, and leaves `dst` alone, for anything else.
bool ReadInteger(const nlohmann::json& value, int64_t low, int64_t high, int64_t* dst);
/// Reads a number in [low, high]. Returns false, and leaves `dst` alone, for anything else.
bool ReadNumber(const nlohmann::json& value, double low, double high, double* dst);

/// Writes a value for a message, in some 100 characters.
std::string ShowJson(const nlohmann::json& value);
/// Writes a key for a message: as UTF-8 without control characters, in some 100 characters.
std::string ShowKey(std::string_view key);

/// Writes the values that a text may have, for a message: one of "a", "b".
std::string OneOf(const std::vector<std::string>& choices);

/// Remembers the keys of an object that a reader knows, so that others can be refused. One thread uses it.
class KnownKeys {
 public:
  KnownKeys() = default;
  KnownKeys(std::initializer_list<std::string_view> keys) : keys_(keys.begin(), keys.end()) {}
  explicit KnownKeys(std::vector<std::string> keys) : keys_(std::move(keys)) {}

  void Add(std::string_view key) { keys_.emplace_back(key); }
  /// Returns the first other key of an object, which owns it; null if there is none.
  const std::string* FirstUnknown(const nlohmann::json& object) const;

 private:
  std::vector<std::string> keys_;
};

/// One value of a document, with its name for messages. The document is owned by the caller. The first fault of the
/// document is kept, and nothing is read or called after it. An absent or null value leaves `dst` as it is.
class JsonValue {
 public:
  /// `fault` takes the first fault. `value` and `fault` must outlive this object.
  JsonValue(std::string name, const nlohmann::json& value, absl::Status* fault)
      : JsonValue(std::move(name), &value, fault) {}
  /// `value`: null for one that is absent.
  JsonValue(std::string name, const nlohmann::json* value, absl::Status* fault)
      : name_(std::move(name)), value_(value), fault_(fault) {}

  /// Returns the same value with a fault of its own: `fault` takes the faults of all that is in it.
  JsonValue Apart(absl::Status* fault) const { return {name_, value_, fault}; }

  const std::string& name() const { return name_; }
  bool present() const { return value_ != nullptr; }
  const nlohmann::json& json() const { return *value_; }

  /// Returns a member of the object; it is absent if the object is absent or has no such member.
  JsonValue Member(const std::string& key) const;
  /// Returns a member as Member() does, and records a fault if it is absent.
  JsonValue Required(const std::string& key, std::string_view expected) const;
  /// Records a fault if the object has any other member.
  void Allow(std::initializer_list<std::string_view> keys) const;
  void Allow(const std::vector<std::string>& keys) const;
  /// Records the fault `what` of the first member whose key is not known.
  void AllowOnly(const KnownKeys& known, std::string_view what) const;
  void ForEachMember(const std::function<void(const std::string& key, const JsonValue& value)>& visit) const;
  void ForEachItem(const std::function<void(const JsonValue& value)>& visit) const;

  /// Records a fault unless the value is a list of at most `most` items.
  void List(size_t most) const;
  /// Returns the number of items; 0 if there is a fault or the value is not a list.
  size_t size() const { return Readable() && value_->is_array() ? value_->size() : 0; }
  /// Returns an item of a list, which has more than `i` of them. An item that is null is not absent.
  JsonValue Item(size_t i) const;

  void Integer(int64_t low, int64_t high, int64_t* dst) const;
  void Integer(int64_t low, int64_t high, int* dst) const;
  void Number(double low, double high, double* dst) const;
  void Boolean(bool* dst) const;
  /// A string without NUL; not an empty one if `nonempty`.
  void String(std::string* dst, bool nonempty = false) const;
  /// One of `choices`; `dst` is set to its position.
  void Choice(const std::vector<std::string>& choices, int* dst) const;

  /// Records a fault of this value: "NAME: 7 found, expected EXPECTED".
  void Refuse(std::string_view expected) const;
  /// Records the message of a status that is not OK as a fault. Does not call `check` if there is a fault already.
  void Check(const std::function<absl::Status()>& check) const;
  /// Records a fault in other words: "NAME: WHAT".
  void Fault(std::string_view what) const;

 private:
  bool Readable() const { return value_ != nullptr && fault_->ok(); }

  std::string name_;
  const nlohmann::json* value_;
  absl::Status* fault_;
};

}  // namespace processor

#endif  // PROCESSOR_BASE_JSON_VALUE_H_
