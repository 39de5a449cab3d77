// SPDX-License-Identifier: Apache-2.0
// Reads a JSON document strictly: every value knows where it stands, and the first fault says so.
#ifndef PROCESSOR_BASE_JSON_VALUE_H_
#define PROCESSOR_BASE_JSON_VALUE_H_

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace processor {

/// What is wrong with the form of a document at one place of it, of which the rest can be read.
struct JsonFault {
  std::vector<std::string> path;  // keys from the top; what lies in a list has the path of the list
  std::string what;
};

/// Parses a text that is one JSON object. Keys that an object has twice, and what is nested too deeply to be copied and
/// printed, are told in `faults`; the latter is left out.
/// \return INVALID_ARGUMENT that begins with `name` for what is no JSON object.
absl::Status ParseJson(std::string_view name, std::string_view text, nlohmann::json* object,
                       std::vector<JsonFault>* faults);

/// One value of a document. The first fault of the document is kept, and nothing is called for what comes after it.
/// What is absent, or null, leaves defaults alone.
class JsonValue {
 public:
  /// `fault` is written by the first fault; `value` and `fault` must outlive this.
  JsonValue(std::string name, const nlohmann::json& value, absl::Status* fault)
      : name_(std::move(name)), value_(&value), fault_(fault) {}

  /// The same value; its faults, and those of what is in it, are of `fault` alone.
  JsonValue Apart(absl::Status* fault) const { return {name_, value_, fault}; }

  const std::string& name() const { return name_; }
  bool present() const { return value_ != nullptr; }
  const nlohmann::json& json() const { return *value_; }

  /// A member of an object; absent if the object is, or has none of that name.
  JsonValue Member(const std::string& key) const;
  /// As Member(), and a fault if it is absent.
  JsonValue Required(const std::string& key, std::string_view expected) const;
  /// A fault if the object has any other member.
  void Allow(std::initializer_list<std::string_view> keys) const;
  void ForEachMember(const std::function<void(const std::string& key, const JsonValue& value)>& visit) const;
  void ForEachItem(const std::function<void(const JsonValue& value)>& visit) const;

  void Integer(int64_t low, int64_t high, int64_t* dst) const;
  void Integer(int64_t low, int64_t high, int* dst) const;
  void Number(double low, double high, double* dst) const;
  void Boolean(bool* dst) const;
  /// A string without NUL; not empty if `nonempty`.
  void String(std::string* dst, bool nonempty = false) const;

  /// A fault of this value: "NAME: 7 found, expected EXPECTED".
  void Refuse(std::string_view expected) const;
  /// A fault with the words of a status that is not OK; nothing is asked where there is a fault already.
  void Check(const std::function<absl::Status()>& check) const;
  /// A fault with words of its own: "NAME: WHAT".
  void Fault(std::string_view what) const;

 private:
  JsonValue(std::string path, const nlohmann::json* value, absl::Status* fault)
      : name_(std::move(path)), value_(value), fault_(fault) {}
  bool Readable() const { return value_ != nullptr && fault_->ok(); }

  std::string name_;
  const nlohmann::json* value_;
  absl::Status* fault_;
};

}  // namespace processor

#endif  // PROCESSOR_BASE_JSON_VALUE_H_
