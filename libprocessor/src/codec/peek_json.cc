// SPDX-License-Identifier: Apache-2.0
#include "absl/strings/escaping.h"
#include "src/codec/json_document.h"
#include "src/codec/kserve_json.h"
#include "src/codec/kserve_parameters.h"
#include "src/codec/peek.h"

namespace processor {
namespace {

/// Adds a value, or those of nested lists. False if they differ or are neither text nor whole numbers.
bool AddValues(JsonElement element, KeyCollector* key) {
  JsonArray array;
  JsonObject object;
  std::string_view text;
  int64_t number;
  std::string bytes;
  if (element.get(array) == simdjson::SUCCESS) {
    // The parser does not nest deeper than a stack can bear.
    for (const JsonElement inner : array) {
      if (!AddValues(inner, key)) return false;
    }
    return true;
  }
  if (element.get(text) == simdjson::SUCCESS) return key->Add(text);
  if (element.get(number) == simdjson::SUCCESS) return key->Add(number);
  return element.get(object) == simdjson::SUCCESS && IsBase64(object, &text) && absl::Base64Unescape(text, &bytes) &&
         key->Add(std::string_view(bytes));
}

/// Adds the values of a member, if there is one of that name.
bool AddMember(JsonElement element, std::string_view name, KeyCollector* key) {
  JsonObject object;
  if (element.get(object) != simdjson::SUCCESS) return true;
  for (const auto [member, value] : object) {
    if (member == name && !AddValues(value, key)) return false;
  }
  return true;
}

bool AddMemberOfEach(JsonElement element, std::string_view name, KeyCollector* key) {
  JsonArray array;
  if (element.get(array) != simdjson::SUCCESS) return true;
  for (const JsonElement inner : array) {
    if (!AddMember(inner, name, key)) return false;
  }
  return true;
}

}  // namespace

PeekOutcome PeekPredictJson(std::string_view body, std::string_view input_name, KeyCollector* key) {
  JsonDocument document;
  if (!document.Parse(body).ok()) return PeekOutcome::kMalformed;
  bool same = true;
  for (const auto [name, value] : document.root()) {
    if (name == "inputs") same = same && AddMember(value, input_name, key);
    if (name == "instances") same = same && AddMemberOfEach(value, input_name, key);
  }
  return same ? PeekOutcome::kFound : PeekOutcome::kDifferent;
}

PeekOutcome PeekExamplesJson(std::string_view body, std::string_view input_name, KeyCollector* key) {
  JsonDocument document;
  if (!document.Parse(body).ok()) return PeekOutcome::kMalformed;
  bool same = true;
  for (const auto [name, value] : document.root()) {
    if (name == "context") same = same && AddMember(value, input_name, key);
    if (name == "examples") same = same && AddMemberOfEach(value, input_name, key);
  }
  return same ? PeekOutcome::kFound : PeekOutcome::kDifferent;
}

PeekOutcome PeekInferJson(std::string_view body, size_t header_length, std::string_view input_name, KeyCollector* key) {
  // A value alone, of which only the signature knows the name.
  if (header_length == kNoHeader) return PeekOutcome::kFound;
  if (header_length > body.size()) return PeekOutcome::kMalformed;
  const size_t header = header_length == 0 ? body.size() : header_length;
  JsonDocument document;
  InferBody infer;
  if (!document.Parse(body.substr(0, header)).ok()) return PeekOutcome::kMalformed;
  if (!ReadInferBody(document.root(), body.substr(header), &infer).ok()) return PeekOutcome::kMalformed;
  for (const JsonInput& input : infer.inputs) {
    if (input.name != input_name) continue;
    const bool strings = input.datatype == "BYTES";
    if (!strings && input.datatype != "INT64") return PeekOutcome::kDifferent;
    if (input.data) return AddValues(*input.data, key) ? PeekOutcome::kFound : PeekOutcome::kDifferent;
    if (strings) return PeekRawStrings(*input.binary, key);
    return key->AddNumbers(*input.binary) ? PeekOutcome::kFound : PeekOutcome::kDifferent;
  }
  return PeekOutcome::kFound;
}

}  // namespace processor
