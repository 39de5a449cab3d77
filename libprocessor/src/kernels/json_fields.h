// SPDX-License-Identifier: Apache-2.0
// Reads the objects of an op's plan: takes their fields, names the object in messages, and refuses a field that nobody
// asked for. Any text gives fields or an error.
#ifndef PROCESSOR_KERNELS_JSON_FIELDS_H_
#define PROCESSOR_KERNELS_JSON_FIELDS_H_

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "nlohmann/json.hpp"

namespace processor {

/// Parses the text of a plan.
/// \param what  what the text is, for messages.
/// \return INVALID_ARGUMENT for what is not a JSON object, is nested deeper than plans are, or is longer than 256 MiB.
absl::Status ParsePlan(std::string_view text, std::string_view what, nlohmann::json* object);

/// One object of a plan, which whoever parsed the plan owns. `status` keeps the first fault of all objects that share it;
/// after a fault all values are in range but mean nothing.
class JsonFields {
 public:
  /// \param where  names the object in messages, as in "embedding plan: key 3". `value` and `status` outlive this.
  JsonFields(const nlohmann::json& value, std::string where, absl::Status* status);

  /// Is the field there? Marks it as known.
  bool Has(const char* field) { return Find(field) != nullptr; }

  /// An integer in [low, high]; the second form has a value for when the field is absent.
  int64_t Int(const char* field, int64_t low, int64_t high);
  int64_t Int(const char* field, int64_t low, int64_t high, int64_t absent);
  bool Bool(const char* field, bool absent);
  /// One of `choices`, by its position. Without `absent` the field must be there.
  int Choice(const char* field, std::initializer_list<std::string_view> choices, int absent = -1);
  double Double(const char* field, double low, double high, double absent);
  /// Finite numbers, rounded to float; at most `most`.
  std::vector<float> Floats(const char* field, size_t most);
  /// The elements of an array with at most `most` of them; an empty one if there is a fault.
  const nlohmann::json& Array(const char* field, size_t most);
  /// A value of any type, or null if it is absent.
  const nlohmann::json* Find(const char* field);

  /// Records `<where>: <found>, expected <expected>`.
  void Refuse(std::string_view found, std::string_view expected);
  /// Records a fault of a field, with its value.
  void RefuseField(const char* field, std::string_view expected);
  /// Records a fault if a field was not asked for.
  void Finish();

 private:
  const nlohmann::json* Require(const char* field, std::string_view expected);

  const nlohmann::json& value_;
  std::string where_;
  absl::Status* status_;
  std::vector<std::string_view> known_;
};

/// Reads an element of an array as an integer in [low, high], or records a fault of the object that has the array.
int64_t JsonInt(const nlohmann::json& value, int64_t low, int64_t high, std::string_view what, JsonFields* fields);
/// Reads an element of an array as a finite float, or records a fault.
float JsonFloat(const nlohmann::json& value, std::string_view what, JsonFields* fields);

}  // namespace processor

#endif  // PROCESSOR_KERNELS_JSON_FIELDS_H_
