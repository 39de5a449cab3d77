// SPDX-License-Identifier: Apache-2.0
#include <string>

#include "absl/strings/str_cat.h"
#include "src/codec/description_parts.h"
#include "src/codec/kserve_json.h"
#include "src/codec/kserve_parameters.h"
#include "src/codec/message_text.h"

namespace processor {
namespace {

/// An output of a few bytes takes more memory than that until it is found that there is none of its name.
constexpr size_t kMaxOutputs = 10000;

absl::Status WrongElement(std::string_view where, JsonElement found, std::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(where, ": ", Describe(found), ", expected ", expected));
}

absl::Status ReadJsonText(std::string_view where, JsonElement element, std::string_view* dst) {
  return element.get(*dst) == simdjson::SUCCESS ? absl::OkStatus() : WrongElement(where, element, "text");
}

absl::Status ReadBool(std::string_view where, JsonElement element, bool* dst) {
  return element.get(*dst) == simdjson::SUCCESS ? absl::OkStatus() : WrongElement(where, element, "true or false");
}

/// Calls `read(key, value)` for the members of an object. Of equal keys, what `read` keeps is that of the last.
template <typename Read>
absl::Status ForEachMember(std::string_view where, JsonElement element, Read&& read) {
  JsonObject object;
  if (element.get(object) != simdjson::SUCCESS) return WrongElement(where, element, "an object");
  for (const auto [key, value] : object) {
    if (absl::Status status = read(key, value); !status.ok()) return status;
  }
  return absl::OkStatus();
}

template <typename Read>
absl::Status ForEachElement(std::string_view where, JsonElement element, Read&& read) {
  JsonArray array;
  if (element.get(array) != simdjson::SUCCESS) return WrongElement(where, element, "a list");
  for (const JsonElement inner : array) {
    if (absl::Status status = read(inner); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status ReadJsonInput(JsonElement element, std::string_view* binary, JsonInput* dst) {
  std::optional<JsonElement> shape, binary_size;
  absl::Status status = ForEachMember("inputs", element, [&](std::string_view key, JsonElement value) -> absl::Status {
    if (key == "name") return ReadJsonText("input: name", value, &dst->name);
    if (key == "datatype") return ReadJsonText("input: datatype", value, &dst->datatype);
    if (key == "shape") shape = value;
    if (key == "data") dst->data = value;
    if (key != "parameters") return absl::OkStatus();
    return ForEachMember("input: parameters", value, [&](std::string_view name, JsonElement parameter) {
      if (name == "binary_data_size") binary_size = parameter;
      return RefuseParameter("input: parameter", name);
    });
  });
  if (!status.ok()) return status;
  const std::string where = absl::StrCat("input '", Printable(dst->name), "'");
  if (!shape) return absl::InvalidArgumentError(absl::StrCat(where, ": no shape, expected one"));
  status = ForEachElement(absl::StrCat(where, ": shape"), *shape, [&](JsonElement dim) -> absl::Status {
    int64_t value;
    if (dim.get(value) != simdjson::SUCCESS) return WrongElement(absl::StrCat(where, ": shape"), dim, "a whole number");
    dst->shape.push_back(value);
    return absl::OkStatus();
  });
  if (!status.ok()) return status;
  if (dst->data.has_value() == binary_size.has_value()) {
    return absl::InvalidArgumentError(absl::StrCat(where, ": ", dst->data ? "both" : "neither", " of 'data' and ",
                                                   "'binary_data_size', expected one of them"));
  }
  if (!binary_size) return absl::OkStatus();
  uint64_t size;
  if (binary_size->get(size) != simdjson::SUCCESS || size > binary->size()) {
    return WrongElement(absl::StrCat(where, ": binary_data_size"), *binary_size,
                        absl::StrCat("at most the ", binary->size(), " bytes that are left"));
  }
  dst->binary = binary->substr(0, size);
  binary->remove_prefix(size);
  return absl::OkStatus();
}

absl::Status ReadOutput(JsonElement element, JsonOutput* dst) {
  return ForEachMember("outputs", element, [&](std::string_view key, JsonElement value) -> absl::Status {
    if (key == "name") return ReadJsonText("output: name", value, &dst->name);
    if (key != "parameters") return absl::OkStatus();
    return ForEachMember("output: parameters", value,
                         [&](std::string_view name, JsonElement parameter) -> absl::Status {
                           if (absl::Status s = RefuseParameter("output: parameter", name); !s.ok()) return s;
                           if (name != "binary_data") return absl::OkStatus();
                           bool binary = false;
                           absl::Status status = ReadBool("output: binary_data", parameter, &binary);
                           dst->binary = binary;
                           return status;
                         });
  });
}

}  // namespace

absl::Status ReadInferBody(const JsonObject& root, std::string_view binary, InferBody* dst) {
  std::optional<JsonElement> inputs, outputs;
  for (const auto [key, value] : root) {
    absl::Status status;
    if (key == "id") status = ReadJsonText("id", value, &dst->id);
    if (key == "inputs" || key == "outputs") {
      std::optional<JsonElement>& place = key == "inputs" ? inputs : outputs;
      if (place) return absl::InvalidArgumentError(absl::StrCat(key, ": given twice, expected once"));
      place = value;
    }
    if (key == "parameters") {
      status = ForEachMember("parameters", value, [&](std::string_view name, JsonElement parameter) {
        if (name == "signature_name") return ReadJsonText("parameter 'signature_name'", parameter, &dst->signature);
        if (name != "binary_data_output") return absl::OkStatus();
        return ReadBool("parameter 'binary_data_output'", parameter, &dst->binary_outputs);
      });
    }
    if (!status.ok()) return status;
  }
  if (!inputs) return absl::InvalidArgumentError("inputs: missing");
  absl::Status status = ForEachElement("inputs", *inputs, [&](JsonElement element) {
    return ReadJsonInput(element, &binary, &dst->inputs.emplace_back());
  });
  if (!status.ok()) return status;
  if (!binary.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat("request: ", binary.size(), " bytes behind the inputs' binary data, expected none"));
  }
  if (!outputs) return absl::OkStatus();
  return ForEachElement("outputs", *outputs, [&](JsonElement element) -> absl::Status {
    if (dst->outputs.size() == kMaxOutputs) {
      return absl::InvalidArgumentError(absl::StrCat("outputs: more, expected at most ", kMaxOutputs));
    }
    return ReadOutput(element, &dst->outputs.emplace_back());
  });
}

absl::Status ReadIndexBody(std::string_view bytes, bool* only_ready) {
  *only_ready = false;
  if (bytes.empty()) return absl::OkStatus();
  JsonDocument document;
  if (absl::Status status = document.Parse(bytes); !status.ok()) return status;
  JsonElement ready;
  if (document.root().at_key("ready").get(ready) != simdjson::SUCCESS) return absl::OkStatus();
  return ReadBool("ready", ready, only_ready);
}

}  // namespace processor
