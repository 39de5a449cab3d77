// SPDX-License-Identifier: Apache-2.0
#include "src/codec/json_document.h"

#include <cmath>
#include <limits>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"

namespace processor {
namespace {

constexpr size_t kLargestKept = size_t{256} << 10;
constexpr size_t kSaturated = 0xffffff;  // where the parser stops counting elements

std::unique_ptr<simdjson::dom::parser>& KeptParser() {
  static thread_local std::unique_ptr<simdjson::dom::parser> parser;
  return parser;
}

/// A string that stands for a token: no name of a value begins with a zero byte.
constexpr std::string_view kNaN("\0NaN", 4);
constexpr std::string_view kInfinity("\0Infinity", 9);
constexpr std::string_view kMinusInfinity("\0-Infinity", 10);

bool IsWordByte(char byte) {
  return (byte >= '0' && byte <= '9') || (byte >= 'A' && byte <= 'Z') || (byte >= 'a' && byte <= 'z') || byte == '_' ||
         byte == '.' || byte == '+' || byte == '-';
}

/// Puts a string in the place of every token outside strings. False if there is none.
bool ReplaceTokens(std::string_view text, std::string* dst) {
  bool found = false, in_string = false;
  for (size_t i = 0; i < text.size();) {
    const char byte = text[i];
    if (in_string && byte == '\\' && i + 1 < text.size()) {
      dst->append(text.substr(i, 2));
      i += 2;
      continue;
    }
    if (byte == '"') in_string = !in_string;
    if (in_string || !IsWordByte(byte)) {
      dst->push_back(byte);
      ++i;
      continue;
    }
    size_t end = i;
    while (end < text.size() && IsWordByte(text[end])) ++end;
    const std::string_view word = text.substr(i, end - i);
    const bool minus = word[0] == '-';
    const std::string_view name = minus ? word.substr(1) : word;
    if (name == "Infinity" || name == "Inf" || name == "NaN") {
      found = true;
      absl::StrAppend(dst, "\"\\u0000", name == "NaN" ? "NaN" : minus ? "-Infinity" : "Infinity", "\"");
    } else {
      dst->append(word);
    }
    i = end;
  }
  return found;
}

}  // namespace

JsonDocument::~JsonDocument() {
  if (parser_ != nullptr && parser_->capacity() <= kLargestKept) KeptParser() = std::move(parser_);
}

absl::Status JsonDocument::Claim(size_t text_bytes, size_t times) {
  constexpr size_t kLeastText = 16384;
  if (text_bytes < kLeastText || text_bytes > kMaxBytes) return absl::OkStatus();
  return claim_.Add("request: JSON", times * text_bytes);
}

absl::Status JsonDocument::Parse(std::string_view text) {
  if (absl::Status s = Claim(text.size(), kMemoryOfText); !s.ok()) return s;
  parser_ = std::move(KeptParser());
  if (parser_ == nullptr) parser_.reset(new (std::nothrow) simdjson::dom::parser(kMaxBytes + 4096));
  if (parser_ == nullptr) return absl::ResourceExhaustedError("request: no memory to read it");
  const absl::Status status = ParseText(text);
  if (!absl::IsInvalidArgument(status) || text.size() > kMaxBytes) return status;
  // A token of four bytes becomes at most four times as long.
  if (absl::Status s = Claim(text.size(), 4); !s.ok()) return s;
  std::string replaced;
  replaced.reserve(text.size());
  if (!ReplaceTokens(text, &replaced)) return status;
  has_tokens_ = true;
  if (absl::Status s = Claim(replaced.size(), kMemoryOfText); !s.ok()) return s;
  return ParseText(replaced);
}

absl::Status JsonDocument::ParseText(std::string_view text) {
  if (text.size() > kMaxBytes) {
    return absl::InvalidArgumentError(
        absl::StrCat("request: ", text.size(), " bytes of JSON, expected at most ", kMaxBytes));
  }
  JsonElement element;
  if (const simdjson::error_code error = parser_->parse(text.data(), text.size(), true).get(element)) {
    if (error == simdjson::MEMALLOC) {
      parser_.reset();
      return absl::ResourceExhaustedError("request: no memory to read it");
    }
    return absl::InvalidArgumentError(
        absl::StrCat("request: no JSON (", simdjson::error_message(error), "), expected an object"));
  }
  if (element.get(root_) != simdjson::SUCCESS) {
    return absl::InvalidArgumentError(absl::StrCat("request: ", Describe(element), ", expected an object"));
  }
  return absl::OkStatus();
}

bool JsonDocument::Number(JsonElement element, double* value) const {
  if (element.get(*value) == simdjson::SUCCESS) return true;
  std::string_view text;
  if (!has_tokens_ || element.get(text) != simdjson::SUCCESS) return false;
  if (text == kNaN) return *value = std::numeric_limits<double>::quiet_NaN(), true;
  if (text == kInfinity) return *value = std::numeric_limits<double>::infinity(), true;
  if (text == kMinusInfinity) return *value = -std::numeric_limits<double>::infinity(), true;
  return false;
}

size_t SizeOf(JsonArray array) {
  size_t size = array.size();
  if (size < kSaturated) return size;
  size = 0;
  for (auto it = array.begin(); it != array.end(); ++it) ++size;
  return size;
}

std::string Describe(JsonElement element) {
  switch (element.type()) {
    case JsonType::ARRAY:
      return "a list";
    case JsonType::OBJECT:
      return "an object";
    case JsonType::STRING:
      return "text";
    case JsonType::BOOL:
      return bool(element.get_bool().value_unsafe()) ? "true" : "false";
    case JsonType::NULL_VALUE:
      return "null";
    case JsonType::INT64:
      return absl::StrCat(element.get_int64().value_unsafe());
    case JsonType::UINT64:
      return absl::StrCat(element.get_uint64().value_unsafe());
    default: {
      std::string text = absl::StrCat(element.get_double().value_unsafe());
      if (text.find_first_of(".e") == std::string::npos) text += ".0";
      return text;
    }
  }
}

bool IsBase64(JsonObject object, std::string_view* text) {
  const auto first = object.begin();
  if (first == object.end() || object.size() != 1 || first.key() != "b64") return false;
  return first.value().get(*text) == simdjson::SUCCESS;
}

}  // namespace processor
