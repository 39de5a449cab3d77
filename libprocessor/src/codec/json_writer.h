// SPDX-License-Identifier: Apache-2.0
// Writes JSON, with the tokens NaN, Infinity and -Infinity of TensorFlow Serving for floats that are no numbers.
#ifndef PROCESSOR_CODEC_JSON_WRITER_H_
#define PROCESSOR_CODEC_JSON_WRITER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "src/base/byte_budget.h"
#include "src/codec/codec.h"
#include "tensorflow/core/framework/tensor.h"

namespace processor {

class JsonWriter {
 public:
  /// Appends text that is JSON already.
  JsonWriter& Text(std::string_view json) {
    text_.append(json);
    return *this;
  }
  /// A string in quotes. `text` is UTF-8.
  JsonWriter& String(std::string_view text);
  JsonWriter& Integer(int64_t value);
  /// The shortest form that reads back as the same float; never without a point or an exponent.
  JsonWriter& Float(float value);
  /// {"b64": "..."}
  JsonWriter& Base64(std::string_view bytes);
  /// A string of any bytes: in quotes, or as base64 if `binary` or if it is no UTF-8.
  JsonWriter& Bytes(std::string_view bytes, bool binary);
  /// "key":
  JsonWriter& Key(std::string_view key) { return String(key).Text(":"); }

  /// The elements [begin, end) of a tensor, with commas between them.
  JsonWriter& Values(const tensorflow::Tensor& tensor, int64_t begin, int64_t end, bool binary);
  /// The part of a tensor from element `begin` on that dimensions `dim` and on span, as nested lists.
  JsonWriter& Nested(const tensorflow::Tensor& tensor, int dim, int64_t begin, bool binary);

  /// Makes room for the text of outputs, if it is much: claims it and allocates it once. `keys`: bytes that go with each
  /// of their rows.
  absl::Status Reserve(const std::vector<tensorflow::Tensor>& outputs, size_t keys);

  const std::string& text() const { return text_; }

 private:
  std::string text_;
  ByteClaim claim_{ByteBudget::Use::kAnswer};
};

/// Makes the text the body of a response. RESOURCE_EXHAUSTED if memory is short.
absl::Status Finish(const JsonWriter& json, Response* dst);

/// Whether all strings of a tensor are UTF-8; true for other dtypes.
bool IsText(const tensorflow::Tensor& tensor);

}  // namespace processor

#endif  // PROCESSOR_CODEC_JSON_WRITER_H_
