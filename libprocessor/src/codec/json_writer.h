// SPDX-License-Identifier: Apache-2.0
// Writes JSON. Floats that are not numbers become the tokens NaN, Infinity and -Infinity, as in TensorFlow Serving.
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

/// Owns the text that it writes, and its claim on the budget of requests. One thread uses it.
class JsonWriter {
 public:
  /// Appends text that already is JSON.
  JsonWriter& Text(std::string_view json) {
    text_.append(json);
    return *this;
  }
  /// Writes UTF-8 text in quotes.
  JsonWriter& String(std::string_view text);
  JsonWriter& Integer(int64_t value);
  /// Writes the shortest form that reads back as the same float, always with a point or an exponent.
  JsonWriter& Float(float value);
  /// Writes {"b64": "..."}.
  JsonWriter& Base64(std::string_view bytes);
  /// Writes any bytes: as base64 if `binary` or if they are not UTF-8, else in quotes.
  JsonWriter& Bytes(std::string_view bytes, bool binary);
  /// Writes "key":
  JsonWriter& Key(std::string_view key) { return String(key).Text(":"); }

  /// Writes the elements [begin, end) of a tensor, with commas between them.
  JsonWriter& Values(const tensorflow::Tensor& tensor, int64_t begin, int64_t end, bool binary);
  /// Writes the part of a tensor that begins at element `begin` and has the dimensions from `dim` on, as nested lists.
  JsonWriter& Nested(const tensorflow::Tensor& tensor, int dim, int64_t begin, bool binary);

  /// Claims and allocates the memory for the text of outputs at once, if it is much. `keys`: further bytes of each row.
  absl::Status Reserve(const std::vector<tensorflow::Tensor>& outputs, size_t keys);

  const std::string& text() const { return text_; }

 private:
  std::string text_;
  ByteClaim claim_{ByteBudget::Use::kAnswer};
};

/// Makes the text the body of a response. \return RESOURCE_EXHAUSTED if there is no memory.
absl::Status Finish(const JsonWriter& json, Response* dst);

/// Whether all strings of a tensor are UTF-8; true for all other dtypes.
bool IsText(const tensorflow::Tensor& tensor);

}  // namespace processor

#endif  // PROCESSOR_CODEC_JSON_WRITER_H_
