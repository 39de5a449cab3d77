// SPDX-License-Identifier: Apache-2.0
// Reads the objects of an op's plan with JsonValue, and refuses fields that were not read. Any text results in fields or
// in an error.
#ifndef PROCESSOR_KERNELS_JSON_FIELDS_H_
#define PROCESSOR_KERNELS_JSON_FIELDS_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "src/base/json_value.h"

namespace processor {

/// Parses the text of a plan.
/// \param what  what the text is, for messages.
/// \return INVALID_ARGUMENT for a text that is not a JSON object, is nested deeper than plans are, or exceeds 256 MiB.
absl::Status ParsePlan(std::string_view text, std::string_view what, nlohmann::json* object);

/// The fields of one object of a plan, whose document the reader of the plan owns. One thread uses it. After the first
/// fault of the document, a value means nothing: it is in its range, or the `absent` that the caller has given.
class JsonFields {
 public:
  explicit JsonFields(JsonValue object) : object_(std::move(object)) {}

  /// Returns a field, which is known from now on; it is absent if it is not there or null.
  JsonValue Field(const char* field);
  /// Whether a field is there. It is known from now on.
  bool Has(const char* field) { return Field(field).present(); }

  /// Returns an integer in [low, high]. In the second form, the field may be absent.
  int64_t Int(const char* field, int64_t low, int64_t high);
  int64_t Int(const char* field, int64_t low, int64_t high, int64_t absent);
  bool Bool(const char* field, bool absent);
  /// Returns the position of a text in `choices`. Without `absent`, the field must be there.
  int Choice(const char* field, const std::vector<std::string>& choices, int absent = -1);
  /// Returns a number in [low, high]; `absent`, which may lie outside, if the field is absent.
  double Number(const char* field, double low, double high, double absent);
  /// Returns finite numbers, rounded to float; at most `most`.
  std::vector<float> Floats(const char* field, size_t most);
  /// Returns a list of at most `most` items.
  JsonValue List(const char* field, size_t most);

  /// Records a fault of the object.
  void Refuse(std::string_view found, std::string_view expected);
  /// Records a fault if the object has a field that is not known.
  void Finish();

 private:
  JsonValue Required(const char* field, std::string_view expected);

  const JsonValue object_;
  KnownKeys known_;
};

/// Returns an item of a list as an integer in [low, high], or records a fault.
int64_t IntItem(const JsonValue& item, int64_t low, int64_t high);
/// Appends the finite numbers of a list, rounded to float; records a fault for anything else.
void AppendFloats(const JsonValue& list, std::vector<float>* dst);

}  // namespace processor

#endif  // PROCESSOR_KERNELS_JSON_FIELDS_H_
