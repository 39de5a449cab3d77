// SPDX-License-Identifier: Apache-2.0
#include "src/codec/json_values.h"

#include <cmath>
#include <limits>
#include <type_traits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/codec/json_dtypes.h"
#include "src/codec/message_text.h"

namespace processor {

using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;

bool InJson(tensorflow::DataType dtype) {
  return WithJsonType(dtype, [](auto) { return true; }, false);
}

absl::Status AppendDims(const TensorSpec& spec, JsonElement element, Dims* dims) {
  JsonArray array;
  while (element.get(array) == simdjson::SUCCESS) {
    if (dims->size() == TensorShape::MaxDimensions()) {
      return absl::InvalidArgumentError(absl::StrCat("input '", spec.alias, "': lists in lists, expected at most ",
                                                     TensorShape::MaxDimensions(), " dimensions"));
    }
    dims->push_back(static_cast<int64_t>(SizeOf(array)));
    const auto first = array.begin();
    if (!(first != array.end())) break;
    element = *first;
  }
  return absl::OkStatus();
}

absl::Status MakeTensor(const TensorSpec& spec, std::string_view protocol, const Dims& dims, size_t most,
                        FeedArena* arena, TensorShape* shape, Tensor* dst) {
  if (!InJson(spec.dtype)) return NotInProtocol("input", spec.alias, spec.dtype, protocol);
  if (absl::Status status = BuildShape(spec, dims, shape); !status.ok()) return status;
  if (absl::Status status = CheckShape(spec, *shape); !status.ok()) return status;
  if (shape->num_elements() > static_cast<int64_t>(most)) {
    return absl::InvalidArgumentError(absl::StrCat("input '", spec.alias, "': fewer values than ",
                                                   shape->num_elements(), ", expected all for shape ",
                                                   shape->DebugString()));
  }
  const size_t width = spec.dtype == tensorflow::DT_STRING ? sizeof(tstring) : tensorflow::DataTypeSize(spec.dtype);
  return MakeInput(spec, *shape, width, 0, arena, dst);
}

JsonFiller::JsonFiller(const TensorSpec& spec, const JsonDocument& document, bool base64, Tensor* dst)
    : spec_(spec), document_(document), base64_(base64), data_(dst->data()), count_(dst->NumElements()) {}

absl::Status JsonFiller::WrongValue(JsonElement element) const {
  return absl::InvalidArgumentError(
      absl::StrCat("input '", spec_.alias, "': ", Describe(element), ", expected a value of ", DtypeName(spec_.dtype)));
}

absl::Status JsonFiller::Precision(JsonElement element) const {
  return absl::InvalidArgumentError(absl::StrCat("input '", spec_.alias, "': ", Describe(element),
                                                 ", expected a number that ", DtypeName(spec_.dtype),
                                                 " holds without loss"));
}

absl::Status JsonFiller::TooMany() const {
  return absl::InvalidArgumentError(
      absl::StrCat("input '", spec_.alias, "': more values, expected ", count_, " for its shape"));
}

template <typename T>
absl::Status JsonFiller::FillAs(JsonElement element) {
  if (filled_ == count_) return TooMany();
  T* const dst = static_cast<T*>(data_) + filled_;
  if constexpr (std::is_same_v<T, tstring>) {
    if (absl::Status status = ReadString(element, dst); !status.ok()) return status;
  } else if constexpr (std::is_same_v<T, bool>) {
    bool value;
    if (element.get(value) != simdjson::SUCCESS) return WrongValue(element);
    *dst = value;
  } else if constexpr (std::is_same_v<T, uint64_t>) {
    if (element.get(*dst) != simdjson::SUCCESS) return WrongValue(element);
  } else if constexpr (std::is_integral_v<T>) {
    int64_t value;
    if (element.get(value) != simdjson::SUCCESS || value < std::numeric_limits<T>::min() ||
        value > std::numeric_limits<T>::max()) {
      return WrongValue(element);
    }
    *dst = static_cast<T>(value);
  } else {
    double value;
    if (!document_.Number(element, &value)) return WrongValue(element);
    if constexpr (std::is_same_v<T, double>) {
      *dst = value;
    } else {
      *dst = static_cast<T>(static_cast<float>(value));
      if (std::isfinite(value) && !std::isfinite(static_cast<float>(*dst))) return Precision(element);
    }
    // A whole number is often an id; one that is not exact would be another id.
    constexpr bool kExact = std::is_same_v<T, double> || std::is_same_v<T, float>;
    constexpr double kMostExact = std::is_same_v<T, double> ? 9007199254740992.0 : 16777216.0;
    if (kExact && std::abs(value) >= kMostExact && !HoldsExactly(element, static_cast<double>(*dst))) {
      return Precision(element);
    }
  }
  ++filled_;
  return absl::OkStatus();
}

absl::Status JsonFiller::ReadString(JsonElement element, tstring* dst) const {
  std::string_view text;
  JsonObject object;
  if (element.get(text) == simdjson::SUCCESS) {
    dst->assign(text.data(), text.size());
  } else if (base64_ && element.get(object) == simdjson::SUCCESS && IsBase64(object, &text)) {
    std::string bytes;
    if (!absl::Base64Unescape(text, &bytes)) {
      return absl::InvalidArgumentError(absl::StrCat("input '", spec_.alias, "': b64 of other bytes, expected base64"));
    }
    dst->assign(bytes.data(), bytes.size());
  } else {
    return WrongValue(element);
  }
  return absl::OkStatus();
}

absl::Status JsonFiller::FillOne(JsonElement element) {
  return WithJsonType(spec_.dtype, [&](auto zero) { return FillAs<decltype(zero)>(element); }, absl::OkStatus());
}

absl::Status JsonFiller::FillList(JsonArray array) {
  const auto fill = [&](auto zero) {
    for (const JsonElement element : array) {
      if (absl::Status status = FillAs<decltype(zero)>(element); !status.ok()) return status;
    }
    return absl::OkStatus();
  };
  return WithJsonType(spec_.dtype, fill, absl::OkStatus());
}

absl::Status JsonFiller::FillNested(JsonElement element, const int64_t* dims, int rank) {
  if (rank == 0) return FillOne(element);
  JsonArray array;
  if (element.get(array) != simdjson::SUCCESS) {
    return absl::InvalidArgumentError(
        absl::StrCat("input '", spec_.alias, "': ", Describe(element), ", expected a list of ", dims[0]));
  }
  if (static_cast<int64_t>(SizeOf(array)) != dims[0]) {
    return absl::InvalidArgumentError(
        absl::StrCat("input '", spec_.alias, "': a list of ", SizeOf(array), ", expected ", dims[0]));
  }
  if (rank == 1) return FillList(array);
  for (const JsonElement inner : array) {
    if (absl::Status status = FillNested(inner, dims + 1, rank - 1); !status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status JsonFiller::FillFlat(JsonElement element) {
  JsonArray array;
  if (element.get(array) != simdjson::SUCCESS) return FillOne(element);
  const auto first = array.begin();
  if (first != array.end() && !(*first).is<JsonArray>()) return FillList(array);
  // The parser does not nest deeper than a stack can bear.
  for (const JsonElement inner : array) {
    if (absl::Status status = FillFlat(inner); !status.ok()) return status;
  }
  return absl::OkStatus();
}

}  // namespace processor
