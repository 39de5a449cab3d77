// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/config/config_reader.h"

#include "absl/strings/str_cat.h"

namespace processor {
namespace {

std::string NameOfKey(std::string_view key) { return absl::StrCat("config key '", ShowKey(key), "'"); }

}  // namespace

absl::Status ConfigReader::Parse(std::string_view text) { return ParseJson("config", text, &object_); }

JsonValue ConfigReader::Member(const std::string& key) {
  known_.Add(key);
  const auto found = object_.find(key);
  return {NameOfKey(key), found == object_.end() || found->is_null() ? nullptr : &*found, &status_};
}

void ConfigReader::Boolean(const std::string& key, bool* dst) {
  const JsonValue value = Member(key);
  int64_t flag = 0;
  if (!value.present() || !ReadInteger(value.json(), 0, 1, &flag)) return value.Boolean(dst);
  *dst = flag == 1;
}

void ConfigReader::Require(const std::string& key) {
  if (!Has(key) && status_.ok()) {
    status_ = absl::NotFoundError(absl::StrCat(NameOfKey(key), ": missing, expected by the drop-in contract"));
  }
}

void ConfigReader::Notice(const std::string& key, std::string_view why) {
  notices_.push_back(absl::StrCat(NameOfKey(key), ": accepted without effect: ", why));
}

absl::Status ConfigReader::Finish() {
  const std::string* const key = known_.FirstUnknown(object_);
  if (status_.ok() && key != nullptr) {
    status_ =
        absl::InvalidArgumentError(absl::StrCat(NameOfKey(*key), ": unknown; docs/configuration.md lists the keys"));
  }
  return status_;
}

}  // namespace processor
