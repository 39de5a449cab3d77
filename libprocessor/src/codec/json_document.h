// SPDX-License-Identifier: Apache-2.0
// The JSON of one request.
//
// A whole document is checked before anything of it is used: a syntax error in a field that nobody reads is an error.
// Parsers are kept by their threads, since their memory costs more than most requests; a large one is given back.
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

class JsonDocument {
 public:
  JsonDocument() = default;
  JsonDocument(const JsonDocument&) = delete;
  JsonDocument& operator=(const JsonDocument&) = delete;
  ~JsonDocument();

  /// Largest text. Parsing takes up to kMemoryOfText times its size in memory, which is claimed before (byte_budget.h).
  static constexpr size_t kMaxBytes = size_t{64} << 20;
  static constexpr size_t kMemoryOfText = 16;

  /// Reads `text`, whose memory is not needed afterwards. To be called once. Takes the tokens NaN, Infinity and
  /// -Infinity, which TensorFlow Serving's clients send, for what Number() knows.
  /// \return INVALID_ARGUMENT for what is not one JSON object in UTF-8, RESOURCE_EXHAUSTED if memory is short.
  absl::Status Parse(std::string_view text);

  /// Lives as long as the document, as do all strings and elements in it.
  const JsonObject& root() const { return root_; }

  /// Whether the element is a number, or a token for one.
  bool Number(JsonElement element, double* value) const;

 private:
  absl::Status ParseText(std::string_view text);
  /// Claims the memory of texts that are worth it.
  absl::Status Claim(size_t text_bytes, size_t times);

  std::unique_ptr<simdjson::dom::parser> parser_;
  JsonObject root_;
  ByteClaim claim_{ByteBudget::Use::kTensors};
  bool has_tokens_ = false;
};

/// Number of elements.
size_t SizeOf(JsonArray array);

/// Words for an element in a message: "a list", "text", "3".
std::string Describe(JsonElement element);

/// The bytes of {"b64": "..."}. False if `object` is another.
bool IsBase64(JsonObject object, std::string_view* text);

}  // namespace processor

#endif  // PROCESSOR_CODEC_JSON_DOCUMENT_H_
