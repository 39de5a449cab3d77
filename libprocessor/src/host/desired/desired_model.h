// SPDX-License-Identifier: Apache-2.0
// Reads the models of desired.json and their versions (desired_state.h). Pure functions; any thread may call them.
#ifndef PROCESSOR_HOST_DESIRED_DESIRED_MODEL_H_
#define PROCESSOR_HOST_DESIRED_DESIRED_MODEL_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/json_value.h"
#include "src/host/desired/desired_state.h"

namespace processor {

/// The rule of IsServingName(), for messages.
constexpr char kServingNameRule[] = "1 to 128 letters, digits, '_', '-' and '.', the first no '-' or '.'";

/// Faults of form, by the path of the version or model that contains them.
using FormFaults = std::map<std::vector<std::string>, std::string>;

/// Parses the number of a version. Only canonical numbers are accepted, so that no version is listed twice.
bool ParseVersionNumber(std::string_view text, int64_t* number);

/// Reads a model into `state`. Its faults, and those of its versions, affect nothing else.
/// \param salts  of the layers, by their names.
void ReadDesiredModel(const JsonValue& value, const std::map<std::string, std::string>& salts, const std::string& name,
                      const FormFaults& form, DesiredState* state);

}  // namespace processor

#endif  // PROCESSOR_HOST_DESIRED_DESIRED_MODEL_H_
