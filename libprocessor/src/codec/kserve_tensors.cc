// SPDX-License-Identifier: Apache-2.0
#include "src/codec/kserve_tensors.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "src/codec/message_text.h"
#include "src/codec/values.h"

namespace processor {
namespace {

using tensorflow::DataType;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;

struct Datatype {
  std::string_view name;
  DataType dtype;
};

constexpr Datatype kDatatypes[] = {
    {"FP32", tensorflow::DT_FLOAT},    {"INT64", tensorflow::DT_INT64},   {"BYTES", tensorflow::DT_STRING},
    {"INT32", tensorflow::DT_INT32},   {"BOOL", tensorflow::DT_BOOL},     {"FP64", tensorflow::DT_DOUBLE},
    {"FP16", tensorflow::DT_HALF},     {"BF16", tensorflow::DT_BFLOAT16}, {"INT8", tensorflow::DT_INT8},
    {"INT16", tensorflow::DT_INT16},   {"UINT8", tensorflow::DT_UINT8},   {"UINT16", tensorflow::DT_UINT16},
    {"UINT32", tensorflow::DT_UINT32}, {"UINT64", tensorflow::DT_UINT64},
};

/// Fields of InferTensorContents.
constexpr ValueLayout IntContents(uint8_t bytes) { return {ValueEncoding::kSigned, 2, bytes, 1, "int_contents"}; }
constexpr ValueLayout Uints(uint8_t bytes) { return {ValueEncoding::kUnsigned, 4, bytes, 1, "uint_contents"}; }

constexpr std::array<ValueLayout, 24> KserveLayouts() {
  std::array<ValueLayout, 24> layouts{};
  layouts[tensorflow::DT_BOOL] = {ValueEncoding::kBool, 1, 1, 1, "bool_contents"};
  layouts[tensorflow::DT_INT8] = IntContents(1);
  layouts[tensorflow::DT_INT16] = IntContents(2);
  layouts[tensorflow::DT_INT32] = IntContents(4);
  layouts[tensorflow::DT_INT64] = {ValueEncoding::kSigned, 3, 8, 1, "int64_contents"};
  layouts[tensorflow::DT_UINT8] = Uints(1);
  layouts[tensorflow::DT_UINT16] = Uints(2);
  layouts[tensorflow::DT_UINT32] = Uints(4);
  layouts[tensorflow::DT_UINT64] = {ValueEncoding::kUnsigned, 5, 8, 1, "uint64_contents"};
  layouts[tensorflow::DT_FLOAT] = {ValueEncoding::kFixed, 6, 4, 1, "fp32_contents"};
  layouts[tensorflow::DT_DOUBLE] = {ValueEncoding::kFixed, 7, 8, 1, "fp64_contents"};
  layouts[tensorflow::DT_STRING] = {ValueEncoding::kBytes, 8, sizeof(tensorflow::tstring), 1, "bytes_contents"};
  return layouts;
}

using Length = uint32_t;  // before each string, little-endian

/// Number of strings; -1 if the last one is cut off.
int64_t CountStrings(std::string_view bytes) {
  int64_t count = 0;
  while (!bytes.empty()) {
    Length length;
    if (bytes.size() < sizeof(length)) return -1;
    std::memcpy(&length, bytes.data(), sizeof(length));
    if (length > bytes.size() - sizeof(length)) return -1;
    bytes.remove_prefix(sizeof(length) + length);
    ++count;
  }
  return count;
}

absl::Status ReadStrings(const TensorSpec& spec, std::string_view bytes, const TensorShape& shape, FeedArena* arena,
                         Tensor* dst) {
  const int64_t given = CountStrings(bytes);
  if (given < 0) {
    return absl::InvalidArgumentError(absl::StrCat("input '", spec.alias, "': raw contents of ", bytes.size(),
                                                   " bytes end within a string, expected lengths and strings"));
  }
  if (given != shape.num_elements()) return WrongCount(spec, given, "raw contents", shape);
  if (absl::Status s = MakeInput(spec, shape, sizeof(tstring), bytes.size(), arena, dst); !s.ok()) return s;
  const char* p = bytes.data();
  auto* const strings = static_cast<tstring*>(dst->data());
  for (int64_t i = 0; i < given; ++i) {
    Length length;
    std::memcpy(&length, p, sizeof(length));
    strings[i].assign(p + sizeof(length), length);
    p += sizeof(length) + length;
  }
  return absl::OkStatus();
}

}  // namespace

std::string_view DatatypeName(DataType dtype) {
  for (const Datatype& datatype : kDatatypes) {
    if (datatype.dtype == dtype) return datatype.name;
  }
  return "";
}

DataType DatatypeOf(std::string_view name) {
  for (const Datatype& datatype : kDatatypes) {
    if (datatype.name == name) return datatype.dtype;
  }
  return tensorflow::DT_INVALID;
}

absl::Status CheckInput(const TensorSpec& spec, std::string_view protocol, std::string_view datatype, const Dims& dims,
                        TensorShape* shape) {
  if (DatatypeOf(datatype) != spec.dtype || spec.dtype == tensorflow::DT_INVALID) {
    const std::string_view wanted = DatatypeName(spec.dtype);
    if (wanted.empty()) return NotInProtocol("input", spec.alias, spec.dtype, protocol);
    return absl::InvalidArgumentError(
        absl::StrCat("input '", spec.alias, "': datatype '", Printable(datatype), "', expected ", wanted));
  }
  if (absl::Status status = BuildShape(spec, dims, shape); !status.ok()) return status;
  return CheckShape(spec, *shape);
}

absl::Status WrongCount(const TensorSpec& spec, int64_t given, std::string_view where, const TensorShape& shape) {
  return absl::InvalidArgumentError(absl::StrCat("input '", spec.alias, "': ", given, " values in ", where,
                                                 ", expected ", shape.num_elements(), " for shape ",
                                                 shape.DebugString()));
}

absl::Status ReadRaw(const TensorSpec& spec, std::string_view bytes, const TensorShape& shape, FeedArena* arena,
                     Tensor* dst) {
  if (spec.dtype == tensorflow::DT_STRING) return ReadStrings(spec, bytes, shape, arena, dst);
  const auto width = static_cast<size_t>(tensorflow::DataTypeSize(spec.dtype));
  if (bytes.size() % width != 0 || bytes.size() / width != static_cast<size_t>(shape.num_elements())) {
    return absl::InvalidArgumentError(absl::StrCat("input '", spec.alias, "': raw contents of ", bytes.size(),
                                                   " bytes, expected ", shape.num_elements(), " values of ", width,
                                                   " bytes for shape ", shape.DebugString()));
  }
  if (absl::Status status = MakeInput(spec, shape, width, 0, arena, dst); !status.ok()) return status;
  if (ReadContent(bytes, dst)) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("input '", spec.alias, "': raw contents of BOOL with other bytes, expected 0 and 1"));
}

absl::Status ReadValue(const TensorSpec& spec, std::string_view protocol, std::string_view bytes, FeedArena* arena,
                       Tensor* dst) {
  if (DatatypeName(spec.dtype).empty()) return NotInProtocol("input", spec.alias, spec.dtype, protocol);
  if (spec.shape.unknown_rank()) {
    return absl::InvalidArgumentError(
        absl::StrCat("input '", spec.alias, "': open rank, expected a shape in a request without JSON"));
  }
  const bool strings = spec.dtype == tensorflow::DT_STRING;
  const size_t values =
      strings ? 1
              : bytes.size() / static_cast<size_t>(tensorflow::DataTypeSize(spec.dtype));  // a rest is noticed later
  uint64_t fixed = 1;
  for (int i = 0; i < spec.shape.dims(); ++i)
    fixed *= static_cast<uint64_t>(std::max<int64_t>(1, spec.shape.dim_size(i)));
  Dims dims;
  bool open = !strings;
  for (int i = 0; i < spec.shape.dims(); ++i) {
    const int64_t dim = spec.shape.dim_size(i);
    dims.push_back(dim >= 0 ? dim : open ? static_cast<int64_t>(values / fixed) : 1);
    open = open && dim >= 0;
  }
  TensorShape shape;
  if (absl::Status status = BuildShape(spec, dims, &shape); !status.ok()) return status;
  if (!strings) return ReadRaw(spec, bytes, shape, arena, dst);
  if (shape.num_elements() != 1) return WrongCount(spec, 1, "a request without JSON", shape);
  if (absl::Status status = MakeInput(spec, shape, sizeof(tstring), bytes.size(), arena, dst); !status.ok())
    return status;
  static_cast<tstring*>(dst->data())->assign(bytes.data(), bytes.size());
  return absl::OkStatus();
}

size_t RawSize(const Tensor& tensor) {
  const auto count = static_cast<size_t>(tensor.NumElements());
  if (tensor.dtype() != tensorflow::DT_STRING) {
    return count * static_cast<size_t>(tensorflow::DataTypeSize(tensor.dtype()));
  }
  const auto* const strings = count == 0 ? nullptr : static_cast<const tstring*>(tensor.data());
  size_t size = count * sizeof(Length);
  for (size_t i = 0; i < count; ++i) size += strings[i].size();
  return size;
}

char* WriteRaw(const Tensor& tensor, char* dst) {
  if (tensor.NumElements() == 0) return dst;
  if (tensor.dtype() != tensorflow::DT_STRING) {
    const size_t size = RawSize(tensor);
    std::memcpy(dst, tensor.data(), size);
    return dst + size;
  }
  const auto* const strings = static_cast<const tstring*>(tensor.data());
  for (int64_t i = 0; i < tensor.NumElements(); ++i) {
    const auto length = static_cast<Length>(strings[i].size());
    std::memcpy(dst, &length, sizeof(length));
    if (length != 0) std::memcpy(dst + sizeof(length), strings[i].data(), length);
    dst += sizeof(length) + length;
  }
  return dst;
}

const ValueLayout& KserveLayout(DataType dtype) {
  static constexpr std::array<ValueLayout, 24> kLayouts = KserveLayouts();
  const auto i = static_cast<size_t>(dtype);
  return kLayouts[i < kLayouts.size() ? i : 0];
}

absl::Status ReadTyped(const TensorSpec& spec, std::string_view contents, const TensorShape& shape, FeedArena* arena,
                       Tensor* dst) {
  const ValueLayout& layout = KserveLayout(spec.dtype);
  if (layout.encoding == ValueEncoding::kNone) {
    return absl::InvalidArgumentError(absl::StrCat("input '", spec.alias, "': contents of ", DatatypeName(spec.dtype),
                                                   ", expected raw_input_contents"));
  }
  ValueFields values;
  WireReader reader(contents);
  WireField field;
  while (!reader.done()) {
    const char* const begin = reader.position();
    if (!reader.Next(&field)) return MalformedInput(spec);
    const int count = 1 + reader.SkipRow(&field);
    if (field.number == layout.field) values.Add(field, count, begin, reader.position());
  }
  const int64_t given = CountScalars(layout, values);
  if (given < 0) return MalformedInput(spec);
  if (given != shape.num_elements()) return WrongCount(spec, given, layout.field_name, shape);
  const size_t text = layout.encoding == ValueEncoding::kBytes ? values.span.size() : 0;
  if (absl::Status s = MakeInput(spec, shape, layout.element_bytes(), text, arena, dst); !s.ok()) return s;
  return ReadScalars(layout, values, given, dst) ? absl::OkStatus() : MalformedInput(spec);
}

bool HasValues(std::string_view contents) {
  constexpr uint32_t kLastNumeric = 7;
  return !ForEachField(contents, [](const WireField& field) {
    return field.number <= kLastNumeric && field.type == WireType::kBytes && field.payload.empty();
  });
}

}  // namespace processor
