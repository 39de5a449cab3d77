// SPDX-License-Identifier: Apache-2.0
// The JSON of one request.
//
// The whole document is checked before any of it is used, so a syntax error in an unused field is an error as well. Each
// thread keeps a parser, because allocating its memory costs more than most requests; the memory of a large one is
// released.
#ifndef PROCESSOR_CODEC_JSON_DOCUMENT_H_
#define PROCESSOR_CODEC_JSON_DOCUMENT_H_

#include <memory>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "src/base/byte_budget.h"
// Without the functions that throw.
#define SIMDJSON_EXCEPTIONS 0
#include "simdjson.h"

namespace processor {

using JsonElement = simdjson::dom::element;
using JsonArray = simdjson::dom::array;
using JsonObject = simdjson::dom::object;
using JsonType = simdjson::dom::element_type;

/// A parsed request. The decoder of the request owns it; one thread uses it.
class JsonDocument {
 public:
  JsonDocument() = default;
  JsonDocument(const JsonDocument&) = delete;
  JsonDocument& operator=(const JsonDocument&) = delete;
  ~JsonDocument();

  /// The largest text. Parsing takes up to kMemoryOfText times its size in memory, which is claimed first
  /// (byte_budget.h).
  static constexpr size_t kMaxBytes = size_t{64} << 20;
  static constexpr size_t kMemoryOfText = 16;

  /// Parses `text`, whose memory is not needed afterwards. May be called once. The tokens NaN, Infinity and -Infinity,
  /// which clients of TensorFlow Serving send, are accepted; Number() reads them.
  /// \return INVALID_ARGUMENT for a text that is not one JSON object in UTF-8, RESOURCE_EXHAUSTED if there is no memory.
  absl::Status Parse(std::string_view text);

  /// Lives as long as the document, as do all strings and elements in it.
  const JsonObject& root() const { return root_; }

  /// Reads a number or one of the three tokens. Returns false for any other element.
  bool Number(JsonElement element, double* value) const;

 private:
  absl::Status ParseText(std::string_view text);
  /// Claims the memory for a text unless it is too little to count.
  absl::Status Claim(size_t text_bytes, size_t times);

  std::unique_ptr<simdjson::dom::parser> parser_;
  JsonObject root_;
  ByteClaim claim_{ByteBudget::Use::kTensors};
  bool has_tokens_ = false;
};

/// Returns the number of elements.
size_t SizeOf(JsonArray array);

/// Describes an element in a message: "a list", "text", "3".
std::string Describe(JsonElement element);

/// Reads the text of {"b64": "..."}. Returns false for any other object.
bool IsBase64(JsonObject object, std::string_view* text);

}  // namespace processor

#endif  // PROCESSOR_CODEC_JSON_DOCUMENT_H_
