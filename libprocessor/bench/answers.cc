// SPDX-License-Identifier: Apache-2.0
#include "answers.h"

#include <google/protobuf/unknown_field_set.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

#include "tensorflow/core/framework/tensor.pb.h"

namespace processor::bench {
namespace {

using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;
using tensorflow::DataType;
using tensorflow::Tensor;

// Reads the fields of a message by protobuf's own parser rather than by the library's codecs, so that a fault in a codec
// cannot hide in both sides of a comparison.
void ParseFields(std::string_view bytes, UnknownFieldSet* fields) {
  if (!fields->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) {
    throw std::runtime_error("message: damaged");
  }
}

std::string_view BytesOf(const UnknownField& field) {
  if (field.type() != UnknownField::TYPE_LENGTH_DELIMITED) throw std::runtime_error("message: a field of another type");
  return field.length_delimited();
}

template <typename T>
void AppendFixed(const UnknownField& field, std::vector<T>* dst) {
  const std::string_view bytes = BytesOf(field);
  if (bytes.size() % sizeof(T) != 0) throw std::runtime_error("ArrayProto: values cut short");
  const size_t before = dst->size();
  dst->resize(before + bytes.size() / sizeof(T));
  std::memcpy(dst->data() + before, bytes.data(), bytes.size());
}

// Packed or not: both are valid protobuf.
void AppendVarints(const UnknownField& field, std::vector<int64_t>* dst) {
  if (field.type() == UnknownField::TYPE_VARINT) {
    dst->push_back(static_cast<int64_t>(field.varint()));
    return;
  }
  uint64_t value = 0;
  int shift = 0;
  for (const char c : BytesOf(field)) {
    const auto byte = static_cast<uint8_t>(c);
    if (shift > 63) throw std::runtime_error("message: varint too long");
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    shift += 7;
    if (byte >= 0x80) continue;
    dst->push_back(static_cast<int64_t>(value));
    value = 0;
    shift = 0;
  }
}

template <typename T, typename Values>
void Fill(const Values& values, Tensor* dst) {
  auto flat = dst->flat<T>();
  if (static_cast<size_t>(flat.size()) != values.size())
    throw std::runtime_error("ArrayProto: values and shape differ");
  std::transform(values.begin(), values.end(), flat.data(), [](const auto& value) { return T(value); });
}

Tensor ReadArrayProto(std::string_view bytes) {
  int dtype = 0;
  std::vector<int64_t> dims, integers;
  std::vector<float> floats;
  std::vector<double> doubles;
  std::vector<std::string> strings;
  UnknownFieldSet fields;
  ParseFields(bytes, &fields);
  for (int i = 0; i < fields.field_count(); ++i) {
    const UnknownField& field = fields.field(i);
    switch (field.number()) {
      case 1:
        dtype = static_cast<int>(field.varint());
        break;
      case 2: {
        UnknownFieldSet shape_fields;
        ParseFields(BytesOf(field), &shape_fields);
        for (int d = 0; d < shape_fields.field_count(); ++d) AppendVarints(shape_fields.field(d), &dims);
        break;
      }
      case 3:
        AppendFixed(field, &floats);
        break;
      case 4:
        AppendFixed(field, &doubles);
        break;
      case 6:
        strings.emplace_back(BytesOf(field));
        break;
      case 5:
      case 7:
      case 8:
        AppendVarints(field, &integers);
        break;
    }
  }
  tensorflow::TensorShape shape;
  if (!tensorflow::TensorShape::BuildTensorShape(dims, &shape).ok()) throw std::runtime_error("ArrayProto: bad shape");
  Tensor tensor(static_cast<DataType>(dtype), shape);
  switch (dtype) {
    case tensorflow::DT_FLOAT:
      Fill<float>(floats, &tensor);
      break;
    case tensorflow::DT_DOUBLE:
      Fill<double>(doubles, &tensor);
      break;
    case tensorflow::DT_STRING:
      Fill<tensorflow::tstring>(strings, &tensor);
      break;
    case tensorflow::DT_INT32:
      Fill<int32_t>(integers, &tensor);
      break;
    case tensorflow::DT_INT64:
      Fill<int64_t>(integers, &tensor);
      break;
    case tensorflow::DT_BOOL:
      Fill<bool>(integers, &tensor);
      break;
    default:
      throw std::runtime_error("ArrayProto: dtype " + std::to_string(dtype) + ", expected one that benchmarks use");
  }
  return tensor;
}

Tensor ReadTensorProto(std::string_view bytes) {
  tensorflow::TensorProto proto;
  Tensor tensor;
  if (!proto.ParseFromString(std::string(bytes)) || !tensor.FromProto(proto)) {
    throw std::runtime_error("TensorProto: damaged");
  }
  return tensor;
}

// Both protocols keep their tensors in a map<string, tensor>; only the field number differs.
NamedTensors ReadMap(std::string_view bytes, int number, std::string_view protocol) {
  NamedTensors tensors;
  UnknownFieldSet fields;
  ParseFields(bytes, &fields);
  for (int i = 0; i < fields.field_count(); ++i) {
    if (fields.field(i).number() != number) continue;
    UnknownFieldSet entry;
    ParseFields(BytesOf(fields.field(i)), &entry);
    std::string key, value;
    for (int e = 0; e < entry.field_count(); ++e) {
      (entry.field(e).number() == 1 ? key : value) = BytesOf(entry.field(e));
    }
    tensors.emplace(key, protocol == "eas" ? ReadArrayProto(value) : ReadTensorProto(value));
  }
  return tensors;
}

template <typename T>
double CompareValues(const std::string& name, const Tensor& a, const Tensor& b, double tolerance) {
  const auto left = a.flat<T>(), right = b.flat<T>();
  double largest = 0;
  for (int64_t i = 0; i < left.size(); ++i) {
    const double x = static_cast<double>(left(i)), y = static_cast<double>(right(i));
    const double difference = std::abs(x - y);
    // Written so that a NaN on one side fails.
    if (!(difference <= tolerance + tolerance * std::abs(y)) && !(std::isnan(x) && std::isnan(y))) {
      throw std::runtime_error("output '" + name + "' [" + std::to_string(i) + "]: " + std::to_string(x) +
                               ", expected " + std::to_string(y));
    }
    if (difference > largest) largest = difference;
  }
  return largest;
}

double CompareTensors(const std::string& name, const Tensor& a, const Tensor& b, double tolerance) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) {
    throw std::runtime_error("output '" + name + "': " + a.DebugString(0) + ", expected " + b.DebugString(0));
  }
  switch (a.dtype()) {
    case tensorflow::DT_FLOAT:
      return CompareValues<float>(name, a, b, tolerance);
    case tensorflow::DT_DOUBLE:
      return CompareValues<double>(name, a, b, tolerance);
    case tensorflow::DT_INT32:
      return CompareValues<int32_t>(name, a, b, tolerance);
    case tensorflow::DT_INT64:
      return CompareValues<int64_t>(name, a, b, tolerance);
    case tensorflow::DT_STRING: {
      const auto left = a.flat<tensorflow::tstring>(), right = b.flat<tensorflow::tstring>();
      if (!std::equal(left.data(), left.data() + left.size(), right.data())) {
        throw std::runtime_error("output '" + name + "': strings differ");
      }
      return 0;
    }
    default:
      throw std::runtime_error("output '" + name + "': a dtype that benchmarks do not compare");
  }
}

}  // namespace

NamedTensors ReadRequest(std::string_view bytes, std::string_view protocol) { return ReadMap(bytes, 2, protocol); }

NamedTensors ReadResponse(std::string_view bytes, std::string_view protocol) { return ReadMap(bytes, 1, protocol); }

double CompareAnswers(const NamedTensors& a, const NamedTensors& b, double tolerance) {
  if (a.size() != b.size()) throw std::runtime_error("answers: the numbers of outputs differ");
  double largest = 0;
  for (const auto& [name, tensor] : a) {
    const auto other = b.find(name);
    if (other == b.end()) throw std::runtime_error("output '" + name + "': only in one of the answers");
    largest = std::max(largest, CompareTensors(name, tensor, other->second, tolerance));
  }
  return largest;
}

}  // namespace processor::bench
