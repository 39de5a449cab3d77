// SPDX-License-Identifier: Apache-2.0
// Reads typed values out of a JSON object and remembers what is wrong: the first fault ends the reading, and a key that
// nobody asked for is a fault.
#ifndef PROCESSOR_RUNTIME_CONFIG_CONFIG_READER_H_
#define PROCESSOR_RUNTIME_CONFIG_CONFIG_READER_H_

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace processor {

class ConfigReader {
 public:
  /// \return INVALID_ARGUMENT if the text is not a JSON object.
  absl::Status Parse(std::string_view text);

  /// Is the key there (JSON null counts as absent)?
  bool Has(const std::string& key);

  // Each leaves `dst` alone if the key is absent, and records INVALID_ARGUMENT for another type or range.
  void Int(const std::string& key, int64_t low, int64_t high, int* dst);
  void Int64(const std::string& key, int64_t low, int64_t high, int64_t* dst);
  void Double(const std::string& key, double low, double high, double* dst);
  void Bool(const std::string& key, bool* dst);
  void String(const std::string& key, std::string* dst);
  /// One of `choices`; `dst` is set to its position.
  void Choice(const std::string& key, const std::vector<std::string>& choices, int* dst);

  /// Records NOT_FOUND if the key is absent.
  void Require(const std::string& key);
  /// Records INVALID_ARGUMENT if the key is there and an empty string.
  void RequireNonEmpty(const std::string& key);
  /// Records a fault of a key.
  void Refuse(const std::string& key, std::string_view why);
  /// Marks a key as known without looking at its value.
  void Ignore(const std::string& key) { known_.insert(key); }

  /// Remembers that a key is accepted and has no effect, and why.
  void Notice(const std::string& key, std::string_view why);
  const std::vector<std::string>& notices() const { return notices_; }

  /// The value as JSON text, for messages.
  std::string Show(const std::string& key) const;

  /// The first fault, or INVALID_ARGUMENT for the first unknown key, or OK.
  absl::Status Finish();

  const nlohmann::json& object() const { return object_; }

 private:
  const nlohmann::json* Get(const std::string& key);
  void WrongType(const std::string& key, std::string_view expected);

  nlohmann::json object_ = nlohmann::json::object();
  std::set<std::string> known_;
  std::vector<std::string> notices_;
  absl::Status status_;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_CONFIG_CONFIG_READER_H_
