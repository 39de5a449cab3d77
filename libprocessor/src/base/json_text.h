// SPDX-License-Identifier: Apache-2.0
#ifndef PROCESSOR_BASE_JSON_TEXT_H_
#define PROCESSOR_BASE_JSON_TEXT_H_

#include <string>

#include "nlohmann/json.hpp"

namespace processor {

/// JSON on one line. Paths and names need not be UTF-8, which the library's default would throw for.
template <typename Json>
std::string JsonText(const Json& value) {
  return value.dump(-1, ' ', false, Json::error_handler_t::replace);
}

}  // namespace processor

#endif  // PROCESSOR_BASE_JSON_TEXT_H_
