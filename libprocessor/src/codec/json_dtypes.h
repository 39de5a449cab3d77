// SPDX-License-Identifier: Apache-2.0
// Maps the dtypes that have values in JSON to C++ types.
#ifndef PROCESSOR_CODEC_JSON_DTYPES_H_
#define PROCESSOR_CODEC_JSON_DTYPES_H_

#include <cstdint>

#include "src/codec/json_document.h"
#include "tensorflow/core/framework/bfloat16.h"
#include "tensorflow/core/framework/types.h"

namespace processor {

/// Returns `call(value)` with a value of the C++ type of a numeric, bool or string dtype; `otherwise` for a dtype that has
/// no values in JSON.
template <typename Call, typename Answer>
Answer WithJsonType(tensorflow::DataType dtype, Call&& call, Answer otherwise) {
  switch (dtype) {
    case tensorflow::DT_FLOAT:
      return call(float{});
    case tensorflow::DT_DOUBLE:
      return call(double{});
    case tensorflow::DT_INT64:
      return call(int64_t{});
    case tensorflow::DT_INT32:
      return call(int32_t{});
    case tensorflow::DT_INT16:
      return call(int16_t{});
    case tensorflow::DT_INT8:
      return call(int8_t{});
    case tensorflow::DT_UINT64:
      return call(uint64_t{});
    case tensorflow::DT_UINT32:
      return call(uint32_t{});
    case tensorflow::DT_UINT16:
      return call(uint16_t{});
    case tensorflow::DT_UINT8:
      return call(uint8_t{});
    case tensorflow::DT_BOOL:
      return call(bool{});
    case tensorflow::DT_HALF:
      return call(Eigen::half{});
    case tensorflow::DT_BFLOAT16:
      return call(tensorflow::bfloat16{});
    case tensorflow::DT_STRING:
      return call(tensorflow::tstring{});
    default:
      return otherwise;
  }
}

/// Whether `value` is exactly the whole number in the JSON, so that no id loses digits. A number that is written with a
/// point or an exponent is not an id.
inline bool HoldsExactly(JsonElement element, double value) {
  constexpr double kTwoTo63 = 9223372036854775808.0;
  int64_t whole;
  if (element.get(whole) == simdjson::SUCCESS && element.is<int64_t>()) {
    return value < kTwoTo63 && value >= -kTwoTo63 && static_cast<int64_t>(value) == whole;
  }
  uint64_t large;
  if (element.get(large) == simdjson::SUCCESS) return value < 2 * kTwoTo63 && static_cast<uint64_t>(value) == large;
  return true;
}

}  // namespace processor

#endif  // PROCESSOR_CODEC_JSON_DTYPES_H_
