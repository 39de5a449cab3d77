// SPDX-License-Identifier: Apache-2.0
#include "oracle.h"

#include <cstring>
#include <random>

#include "tensorflow/core/framework/bfloat16.h"
#include "tensorflow/core/framework/register_types.h"
#include "tensorflow/core/framework/tensor.pb.h"

namespace processor::oracle {
namespace {

using tensorflow::DataType;
using tensorflow::Tensor;
using tensorflow::TensorShape;

void SetInfo(const std::string& signature, const Spec& spec, tensorflow::TensorInfo* info) {
  info->set_name(signature + "_" + spec.alias + ":0");
  info->set_dtype(spec.dtype);
  if (spec.unknown_rank) {
    info->mutable_tensor_shape()->set_unknown_rank(true);
    return;
  }
  for (const int64_t dim : spec.dims) info->mutable_tensor_shape()->add_dim()->set_size(dim);
}

/// Number of scalars in the field that `dtype` uses, -1 if the protocol has none for it.
int64_t ScalarCount(const tensorflow::eas::ArrayProto& message, DataType dtype) {
  switch (dtype) {
    case tensorflow::DT_FLOAT:
    case tensorflow::DT_HALF:
    case tensorflow::DT_BFLOAT16:
    case tensorflow::DT_COMPLEX64:
      return message.float_val_size();
    case tensorflow::DT_DOUBLE:
    case tensorflow::DT_COMPLEX128:
      return message.double_val_size();
    case tensorflow::DT_STRING:
      return message.string_val_size();
    case tensorflow::DT_INT64:
      return message.int64_val_size();
    case tensorflow::DT_BOOL:
      return message.bool_val_size();
    default:
      return message.int_val_size();
  }
}

/// Calls `call` with a value of the integer type of `dtype`; quantized types are integers of their width.
template <typename Call>
void WithIntType(DataType dtype, Call&& call) {
  switch (dtype) {
    case tensorflow::DT_INT8:
    case tensorflow::DT_QINT8:
      return call(int8_t{});
    case tensorflow::DT_UINT8:
    case tensorflow::DT_QUINT8:
      return call(uint8_t{});
    case tensorflow::DT_INT16:
    case tensorflow::DT_QINT16:
      return call(int16_t{});
    case tensorflow::DT_UINT16:
    case tensorflow::DT_QUINT16:
      return call(uint16_t{});
    default:
      return call(int32_t{});
  }
}

}  // namespace

std::unique_ptr<SignatureSet> MakeSignatures(const std::vector<SignatureSpec>& specs) {
  tensorflow::MetaGraphDef meta_graph;
  for (const SignatureSpec& spec : specs) {
    tensorflow::SignatureDef& def = (*meta_graph.mutable_signature_def())[spec.name];
    def.set_method_name(spec.method_name);
    for (const Spec& input : spec.inputs) SetInfo(spec.name, input, &(*def.mutable_inputs())[input.alias]);
    for (const Spec& output : spec.outputs) SetInfo(spec.name, output, &(*def.mutable_outputs())[output.alias]);
  }
  auto signatures = std::make_unique<SignatureSet>();
  signatures->Load(meta_graph).IgnoreError();
  signatures->set_default(signatures->Find(specs.front().name));
  return signatures;
}

std::unique_ptr<SignatureSet> MakeSignatures(const std::string& name, const std::vector<Spec>& inputs,
                                             const std::vector<Spec>& outputs) {
  return MakeSignatures({{name, inputs, outputs}});
}

std::vector<DataType> DtypesOf(std::string_view protocol) {
  if (protocol == "kserve") {
    return {tensorflow::DT_FLOAT,  tensorflow::DT_DOUBLE,  tensorflow::DT_INT8,  tensorflow::DT_INT16,
            tensorflow::DT_INT32,  tensorflow::DT_INT64,   tensorflow::DT_UINT8, tensorflow::DT_UINT16,
            tensorflow::DT_UINT32, tensorflow::DT_UINT64,  tensorflow::DT_BOOL,  tensorflow::DT_STRING,
            tensorflow::DT_HALF,   tensorflow::DT_BFLOAT16};
  }
  std::vector<DataType> dtypes;
  for (int i = tensorflow::DT_FLOAT; i <= tensorflow::DT_HALF; ++i) dtypes.push_back(static_cast<DataType>(i));
  if (protocol == "tfserving") dtypes.insert(dtypes.end(), {tensorflow::DT_UINT32, tensorflow::DT_UINT64});
  return dtypes;
}

void ToMessage(const Tensor& tensor, tensorflow::eas::ArrayProto* dst) {
  dst->Clear();
  dst->set_dtype(static_cast<tensorflow::eas::ArrayDataType>(tensor.dtype()));
  dst->mutable_array_shape();
  for (int i = 0; i < tensor.dims(); ++i) dst->mutable_array_shape()->add_dim(tensor.dim_size(i));
  const int64_t n = tensor.NumElements();
  for (int64_t i = 0; i < n; ++i) {
    switch (tensor.dtype()) {
      case tensorflow::DT_FLOAT:
        dst->add_float_val(tensor.flat<float>()(i));
        break;
      case tensorflow::DT_HALF:
        dst->add_float_val(static_cast<float>(tensor.flat<Eigen::half>()(i)));
        break;
      case tensorflow::DT_BFLOAT16:
        dst->add_float_val(static_cast<float>(tensor.flat<tensorflow::bfloat16>()(i)));
        break;
      case tensorflow::DT_COMPLEX64:
        dst->add_float_val(tensor.flat<tensorflow::complex64>()(i).real());
        dst->add_float_val(tensor.flat<tensorflow::complex64>()(i).imag());
        break;
      case tensorflow::DT_DOUBLE:
        dst->add_double_val(tensor.flat<double>()(i));
        break;
      case tensorflow::DT_COMPLEX128:
        dst->add_double_val(tensor.flat<tensorflow::complex128>()(i).real());
        dst->add_double_val(tensor.flat<tensorflow::complex128>()(i).imag());
        break;
      case tensorflow::DT_STRING:
        dst->add_string_val(std::string(tensor.flat<tensorflow::tstring>()(i)));
        break;
      case tensorflow::DT_INT64:
        dst->add_int64_val(tensor.flat<int64_t>()(i));
        break;
      case tensorflow::DT_BOOL:
        dst->add_bool_val(tensor.flat<bool>()(i));
        break;
      default:
        WithIntType(tensor.dtype(),
                    [&](auto type) { dst->add_int_val(static_cast<const decltype(type)*>(tensor.data())[i]); });
    }
  }
}

void ToMessage(const Tensor& tensor, tensorflow::TensorProto* dst) {
  dst->Clear();
  tensor.AsProtoField(dst);
}

bool ToTensor(const tensorflow::eas::ArrayProto& message, DataType dtype, Tensor* dst) {
  if (static_cast<int>(message.dtype()) != static_cast<int>(dtype)) return false;
  TensorShape shape;
  const std::vector<int64_t> dims(message.array_shape().dim().begin(), message.array_shape().dim().end());
  if (dims.size() > TensorShape::MaxDimensions()) return false;
  for (const int64_t dim : dims) {
    if (dim < 0) return false;
  }
  if (!TensorShape::BuildTensorShape(dims, &shape).ok()) return false;
  const int64_t scalars = ScalarCount(message, dtype);
  const int64_t pair = dtype == tensorflow::DT_COMPLEX64 || dtype == tensorflow::DT_COMPLEX128 ? 2 : 1;
  if (scalars % pair != 0 || scalars / pair != shape.num_elements()) return false;
  Tensor tensor(dtype, shape);
  for (int64_t i = 0; i < shape.num_elements(); ++i) {
    switch (dtype) {
      case tensorflow::DT_FLOAT:
        tensor.flat<float>()(i) = message.float_val(i);
        break;
      case tensorflow::DT_HALF:
        tensor.flat<Eigen::half>()(i) = Eigen::half(message.float_val(i));
        break;
      case tensorflow::DT_BFLOAT16:
        tensor.flat<tensorflow::bfloat16>()(i) = tensorflow::bfloat16(message.float_val(i));
        break;
      case tensorflow::DT_COMPLEX64:
        tensor.flat<tensorflow::complex64>()(i) = {message.float_val(2 * i), message.float_val(2 * i + 1)};
        break;
      case tensorflow::DT_DOUBLE:
        tensor.flat<double>()(i) = message.double_val(i);
        break;
      case tensorflow::DT_COMPLEX128:
        tensor.flat<tensorflow::complex128>()(i) = {message.double_val(2 * i), message.double_val(2 * i + 1)};
        break;
      case tensorflow::DT_STRING:
        tensor.flat<tensorflow::tstring>()(i) = message.string_val(i);
        break;
      case tensorflow::DT_INT64:
        tensor.flat<int64_t>()(i) = message.int64_val(i);
        break;
      case tensorflow::DT_BOOL:
        tensor.flat<bool>()(i) = message.bool_val(i);
        break;
      default:
        WithIntType(dtype, [&](auto type) {
          static_cast<decltype(type)*>(tensor.data())[i] = static_cast<decltype(type)>(message.int_val(i));
        });
    }
  }
  *dst = std::move(tensor);
  return true;
}

bool ToTensor(const tensorflow::TensorProto& message, DataType dtype, Tensor* dst) {
  if (message.dtype() != dtype) return false;
  // TensorFlow would take strings packed in tensor_content, in a format that no client writes.
  if (dtype == tensorflow::DT_STRING && !message.tensor_content().empty()) {
    if (!TensorShape::IsValid(message.tensor_shape()) || TensorShape(message.tensor_shape()).num_elements() > 0) {
      return false;
    }
  }
  return dst->FromProto(message);
}

bool Same(const Tensor& a, const Tensor& b) {
  if (a.dtype() != b.dtype() || a.shape() != b.shape()) return false;
  const int64_t n = a.NumElements();
  if (n == 0) return true;
  if (a.dtype() == tensorflow::DT_STRING) {
    for (int64_t i = 0; i < n; ++i) {
      if (a.flat<tensorflow::tstring>()(i) != b.flat<tensorflow::tstring>()(i)) return false;
    }
    return true;
  }
  return std::memcmp(a.data(), b.data(), n * tensorflow::DataTypeSize(a.dtype())) == 0;
}

Tensor RandomTensor(DataType dtype, const TensorShape& shape, uint64_t seed) {
  std::mt19937_64 random(seed);
  Tensor tensor(dtype, shape);
  const int64_t n = tensor.NumElements();
  if (n == 0) return tensor;
  if (dtype == tensorflow::DT_STRING) {
    for (int64_t i = 0; i < n; ++i) {
      std::string text(random() % 41, '\0');
      for (char& c : text) c = static_cast<char>(random());
      tensor.flat<tensorflow::tstring>()(i) = text;
    }
    return tensor;
  }
  char* const bytes = static_cast<char*>(tensor.data());
  const size_t size = n * tensorflow::DataTypeSize(dtype);
  for (size_t i = 0; i < size; ++i) bytes[i] = static_cast<char>(random());
  if (dtype == tensorflow::DT_BOOL) {
    for (size_t i = 0; i < size; ++i) bytes[i] &= 1;
  }
  if (dtype == tensorflow::DT_HALF || dtype == tensorflow::DT_BFLOAT16) {
    for (size_t i = 1; i < size; i += 2) bytes[i] &= static_cast<char>(0xbb);  // an exponent bit off: finite
  }
  return tensor;
}

}  // namespace processor::oracle
