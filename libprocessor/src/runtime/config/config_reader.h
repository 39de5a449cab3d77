// SPDX-License-Identifier: Apache-2.0
// Reads a flat JSON object of options. Messages name its keys; a key that is not read is refused as unknown.
#ifndef PROCESSOR_RUNTIME_CONFIG_CONFIG_READER_H_
#define PROCESSOR_RUNTIME_CONFIG_CONFIG_READER_H_

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"
#include "src/base/json_value.h"

namespace processor {

/// The configuration of one model while it is read. Owns the document; one thread uses it.
class ConfigReader {
 public:
  /// \return INVALID_ARGUMENT if the text is not a JSON object.
  absl::Status Parse(std::string_view text);

  /// Returns the value of a key, which is known from now on; absent if the key is not there or null.
  JsonValue Member(const std::string& key);
  bool Has(const std::string& key) { return Member(key).present(); }
  /// Reads true or false, which hosts of the contract also write as 1 and 0.
  void Boolean(const std::string& key, bool* dst);

  /// Records NOT_FOUND if the key is absent.
  void Require(const std::string& key);

  /// Remembers that a key is accepted and has no effect, and why.
  void Notice(const std::string& key, std::string_view why);
  const std::vector<std::string>& notices() const { return notices_; }

  /// Returns the first fault, or INVALID_ARGUMENT for the first unknown key, or OK.
  absl::Status Finish();

  const nlohmann::json& object() const { return object_; }

 private:
  nlohmann::json object_ = nlohmann::json::object();
  KnownKeys known_;
  std::vector<std::string> notices_;
  absl::Status status_;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_CONFIG_CONFIG_READER_H_
