// SPDX-License-Identifier: Apache-2.0
#include "src/codec/example_json.h"

#include <cmath>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/codec/json_dtypes.h"
#include "src/codec/message_text.h"
#include "src/codec/wire.h"

namespace processor {
namespace {

/// Fields of Example, Features, the entries of its map, and of Feature and the lists in it.
constexpr uint32_t kFeatures = 1;
constexpr uint32_t kFeature = 1;
constexpr uint32_t kKey = 1;
constexpr uint32_t kEntryValue = 2;
constexpr uint32_t kBytesList = 1;
constexpr uint32_t kFloatList = 2;
constexpr uint32_t kInt64List = 3;
constexpr uint32_t kListValue = 1;

constexpr int kMostTag = 20;  // a tag and a length

void AppendHeader(uint32_t number, size_t size, std::string* dst) {
  char buffer[kMostTag];
  WireWriter writer(buffer);
  writer.BytesHeader(number, size);
  dst->append(buffer, writer.position());
}

void AppendField(uint32_t number, std::string_view content, std::string* dst) {
  AppendHeader(number, content.size(), dst);
  dst->append(content);
}

/// Collects the values of one feature.
class FeatureReader {
 public:
  FeatureReader(std::string_view name, const JsonDocument& document) : name_(name), document_(document) {}

  absl::Status Add(JsonElement element) {
    std::string_view text;
    JsonObject object;
    int64_t whole;
    bool truth;
    double value;
    // Before text: a token for a float is text of another kind.
    if (element.is<bool>() && element.get(truth) == simdjson::SUCCESS) return AddInteger(truth ? 1 : 0);
    if (element.is<int64_t>() && element.get(whole) == simdjson::SUCCESS) return AddInteger(whole);
    if (element.is<uint64_t>()) return Wrong(element, "an int64");
    if (document_.Number(element, &value)) return AddFloat(element, value);
    if (element.get(text) == simdjson::SUCCESS) return AddBytes(element, text);
    if (element.get(object) == simdjson::SUCCESS && IsBase64(object, &text)) {
      std::string bytes;
      if (!absl::Base64Unescape(text, &bytes)) return Wrong(element, "b64 of base64");
      return AddBytes(element, bytes);
    }
    return Wrong(element, "text, b64 or a number");
  }

  /// Appends the Feature.
  void Append(std::string* dst) const {
    std::string list;
    uint32_t kind = kBytesList;
    if (!floats_.empty()) {
      kind = kFloatList;
      AppendHeader(kListValue, floats_.size() * sizeof(float), &list);
      list.append(reinterpret_cast<const char*>(floats_.data()), floats_.size() * sizeof(float));
    } else if (!integers_.empty()) {
      kind = kInt64List;
      size_t size = 0;
      for (const int64_t value : integers_) size += VarintSize(static_cast<uint64_t>(value));
      AppendHeader(kListValue, size, &list);
      const size_t begin = list.size();
      list.resize(begin + size);
      WireWriter writer(list.data() + begin);
      for (const int64_t value : integers_) writer.Varint(static_cast<uint64_t>(value));
    } else if (!bytes_.empty()) {
      list = bytes_;
    } else {
      return;  // a feature without values
    }
    AppendField(kind, list, dst);
  }

 private:
  absl::Status Wrong(JsonElement element, std::string_view expected) const {
    return absl::InvalidArgumentError(
        absl::StrCat("feature '", Printable(name_), "': ", Describe(element), ", expected ", expected));
  }

  absl::Status Mixed() const {
    return absl::InvalidArgumentError(
        absl::StrCat("feature '", Printable(name_), "': text and numbers, expected values of one kind"));
  }

  absl::Status AddInteger(int64_t value) {
    if (!bytes_.empty()) return Mixed();
    if (floats_.empty()) {
      integers_.push_back(value);
    } else {
      floats_.push_back(static_cast<float>(value));
    }
    return absl::OkStatus();
  }

  absl::Status AddFloat(JsonElement element, double value) {
    if (!bytes_.empty()) return Mixed();
    const auto number = static_cast<float>(value);
    if (std::isfinite(value) && !std::isfinite(number)) return Wrong(element, "a float");
    for (const int64_t integer : integers_) floats_.push_back(static_cast<float>(integer));
    integers_.clear();
    floats_.push_back(number);
    return absl::OkStatus();
  }

  absl::Status AddBytes(JsonElement, std::string_view bytes) {
    if (!integers_.empty() || !floats_.empty()) return Mixed();
    AppendField(kListValue, bytes, &bytes_);
    return absl::OkStatus();
  }

  const std::string_view name_;
  const JsonDocument& document_;
  std::vector<int64_t> integers_;
  std::vector<float> floats_;
  std::string bytes_;  // fields of a BytesList
};

}  // namespace

absl::Status AppendExample(const JsonDocument& document, JsonElement element, std::string* dst) {
  JsonObject object;
  if (element.get(object) != simdjson::SUCCESS) {
    return absl::InvalidArgumentError(absl::StrCat(Describe(element), ", expected an object of features"));
  }
  std::string features;
  for (const auto [key, value] : object) {
    FeatureReader reader(key, document);
    JsonArray array;
    if (value.get(array) != simdjson::SUCCESS) {
      if (absl::Status status = reader.Add(value); !status.ok()) return status;
    } else {
      for (const JsonElement inner : array) {
        if (absl::Status status = reader.Add(inner); !status.ok()) return status;
      }
    }
    std::string feature;
    reader.Append(&feature);
    AppendHeader(kFeature, BytesFieldSize(kKey, key.size()) + BytesFieldSize(kEntryValue, feature.size()), &features);
    AppendField(kKey, key, &features);
    AppendField(kEntryValue, feature, &features);
  }
  AppendField(kFeatures, features, dst);
  return absl::OkStatus();
}

}  // namespace processor
