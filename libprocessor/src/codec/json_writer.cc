// SPDX-License-Identifier: Apache-2.0
#include "src/codec/json_writer.h"

#include <charconv>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "absl/strings/escaping.h"
#include "src/codec/json_dtypes.h"
#include "src/codec/predict_codec.h"

namespace processor {
namespace {

using tensorflow::Tensor;
using tensorflow::tstring;

template <typename T>
void AppendNumber(T value, std::string* dst) {
  char buffer[32];
  dst->append(buffer, std::to_chars(buffer, buffer + sizeof(buffer), value).ptr);
}

template <typename T>
void AppendFloat(T value, std::string* dst) {
  if (!std::isfinite(value)) {
    dst->append(std::isnan(value) ? "NaN" : value > 0 ? "Infinity" : "-Infinity");
    return;
  }
  char buffer[32];
  char* end = std::to_chars(buffer, buffer + sizeof(buffer), value).ptr;
  const std::string_view text(buffer, static_cast<size_t>(end - buffer));
  dst->append(text);
  if (text.find_first_of(".e") == std::string_view::npos) dst->append(".0");
}

std::string_view View(const tstring& text) { return {text.data(), text.size()}; }

}  // namespace

JsonWriter& JsonWriter::String(std::string_view text) {
  static constexpr char kHex[] = "0123456789abcdef";
  text_.push_back('"');
  size_t plain = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<uint8_t>(text[i]);
    if (byte >= 0x20 && byte != '"' && byte != '\\') continue;
    text_.append(text.substr(plain, i - plain));
    plain = i + 1;
    text_.push_back('\\');
    if (byte == '"' || byte == '\\') {
      text_.push_back(static_cast<char>(byte));
    } else if (byte == '\n') {
      text_.push_back('n');
    } else {
      text_.append("u00").push_back(kHex[byte >> 4]);
      text_.push_back(kHex[byte & 15]);
    }
  }
  text_.append(text.substr(plain));
  text_.push_back('"');
  return *this;
}

JsonWriter& JsonWriter::Integer(int64_t value) { return AppendNumber(value, &text_), *this; }

JsonWriter& JsonWriter::Float(float value) { return AppendFloat(value, &text_), *this; }

JsonWriter& JsonWriter::Base64(std::string_view bytes) {
  return Text("{\"b64\":\"").Text(absl::Base64Escape(bytes)).Text("\"}");
}

JsonWriter& JsonWriter::Bytes(std::string_view bytes, bool binary) {
  return binary || !simdjson::validate_utf8(bytes) ? Base64(bytes) : String(bytes);
}

JsonWriter& JsonWriter::Values(const Tensor& tensor, int64_t begin, int64_t end, bool binary) {
  if (begin == end) return *this;
  const void* const data = tensor.data();
  const auto write = [&](auto zero) {
    using T = decltype(zero);
    const T* const values = static_cast<const T*>(data);
    for (int64_t i = begin; i < end; ++i) {
      if (i > begin) text_.push_back(',');
      if constexpr (std::is_same_v<T, tstring>) {
        Bytes(View(values[i]), binary);
      } else if constexpr (std::is_same_v<T, bool>) {
        text_.append(values[i] ? "true" : "false");
      } else if constexpr (std::is_integral_v<T>) {
        AppendNumber(values[i], &text_);
      } else if constexpr (std::is_same_v<T, double>) {
        AppendFloat(values[i], &text_);
      } else {
        AppendFloat(static_cast<float>(values[i]), &text_);
      }
    }
    return true;
  };
  WithJsonType(tensor.dtype(), write, false);
  return *this;
}

JsonWriter& JsonWriter::Nested(const Tensor& tensor, int dim, int64_t begin, bool binary) {
  if (dim == tensor.dims()) return Values(tensor, begin, begin + 1, binary);
  const int64_t size = tensor.dim_size(dim);
  text_.push_back('[');
  if (dim + 1 == tensor.dims()) {
    Values(tensor, begin, begin + size, binary);
  } else {
    int64_t stride = 1;
    for (int d = dim + 1; d < tensor.dims(); ++d) stride *= tensor.dim_size(d);
    for (int64_t i = 0; i < size; ++i) {
      if (i > 0) text_.push_back(',');
      Nested(tensor, dim + 1, begin + i * stride, binary);
    }
  }
  text_.push_back(']');
  return *this;
}

absl::Status JsonWriter::Reserve(const std::vector<Tensor>& outputs, size_t keys) {
  constexpr size_t kLongestNumber = 26;
  constexpr size_t kLongestEscape = 6;  // of a byte
  constexpr size_t kMuch = 65536;
  size_t bytes = 0;
  for (const Tensor& output : outputs) {
    const auto count = static_cast<size_t>(output.NumElements());
    bytes += count * kLongestNumber;
    if (output.dims() > 0) bytes += static_cast<size_t>(output.dim_size(0)) * keys;
    if (output.dtype() != tensorflow::DT_STRING) continue;
    const auto* const strings = static_cast<const tstring*>(output.data());
    for (size_t i = 0; i < count; ++i) bytes += strings[i].size() * kLongestEscape;
  }
  if (bytes < kMuch) return absl::OkStatus();
  if (absl::Status s = claim_.Add("response", bytes); !s.ok()) return s;
  text_.reserve(bytes);
  return absl::OkStatus();
}

absl::Status Finish(const JsonWriter& json, Response* dst) {
  if (absl::Status status = MakeRoom(json.text().size(), &dst->body); !status.ok()) return status;
  std::memcpy(dst->body.data(), json.text().data(), json.text().size());
  return absl::OkStatus();
}

bool IsText(const Tensor& tensor) {
  if (tensor.dtype() != tensorflow::DT_STRING) return true;
  const auto* const strings = static_cast<const tstring*>(tensor.data());
  for (int64_t i = 0; i < tensor.NumElements(); ++i) {
    if (!simdjson::validate_utf8(View(strings[i]))) return false;
  }
  return true;
}

}  // namespace processor
