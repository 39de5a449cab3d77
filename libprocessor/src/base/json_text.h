// SPDX-License-Identifier: Apache-2.0
// Writes JSON as text.
#ifndef PROCESSOR_BASE_JSON_TEXT_H_
#define PROCESSOR_BASE_JSON_TEXT_H_

#include <string>

#include "nlohmann/json.hpp"

namespace processor {

/// Returns JSON on one line. Bytes that are not UTF-8, which paths and names may have, are replaced: the library's
/// default is to throw.
template <typename Json>
std::string JsonText(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace processor

#endif  // PROCESSOR_BASE_JSON_TEXT_H_
