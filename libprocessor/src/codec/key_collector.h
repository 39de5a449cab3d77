// SPDX-License-Identifier: Apache-2.0
// Collects the value of a routing input, which has one value or several equal ones.
#ifndef PROCESSOR_CODEC_KEY_COLLECTOR_H_
#define PROCESSOR_CODEC_KEY_COLLECTOR_H_

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"

namespace processor {

/// Writes the first value to a text that the caller owns. Each Add() returns whether its value equals those before. One
/// thread uses it.
class KeyCollector {
 public:
  explicit KeyCollector(std::string* key) : key_(key) {}

  bool Add(std::string_view value) {
    if (any_) return !is_number_ && value == *key_;
    any_ = true;
    key_->assign(value);
    return true;
  }

  bool Add(int64_t value) {
    if (any_) return is_number_ && value == number_;
    any_ = is_number_ = true;
    number_ = value;
    *key_ = absl::StrCat(value);
    return true;
  }

  /// Adds consecutive little-endian numbers.
  bool AddNumbers(std::string_view content) {
    if (content.size() % sizeof(int64_t) != 0) return false;
    for (size_t i = 0; i < content.size(); i += sizeof(int64_t)) {
      int64_t value;
      std::memcpy(&value, content.data() + i, sizeof(value));
      if (!Add(value)) return false;
    }
    return true;
  }

  bool any() const { return any_; }

 private:
  std::string* const key_;
  bool any_ = false;
  bool is_number_ = false;
  int64_t number_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_CODEC_KEY_COLLECTOR_H_
