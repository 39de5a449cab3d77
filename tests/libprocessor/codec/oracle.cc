// SPDX-License-Identifier: Apache-2.0
#include "oracle.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>

#include "scalars.h"
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

/// Calls `call` with a value of the type of `dtype` and the field that has its scalars: quantized types are integers of
/// their width, and a complex number is two scalars.
template <typename Call>
void WithField(DataType dtype, tensorflow::eas::ArrayProto* message, const Call& call) {
  switch (dtype) {
    case tensorflow::DT_FLOAT:
    case tensorflow::DT_COMPLEX64:
      return call(float{}, message->mutable_float_val());
    case tensorflow::DT_HALF:
      return call(Eigen::half{}, message->mutable_float_val());
    case tensorflow::DT_BFLOAT16:
      return call(tensorflow::bfloat16{}, message->mutable_float_val());
    case tensorflow::DT_DOUBLE:
    case tensorflow::DT_COMPLEX128:
      return call(double{}, message->mutable_double_val());
    case tensorflow::DT_STRING:
      return call(tensorflow::tstring{}, message->mutable_string_val());
    case tensorflow::DT_INT64:
      return call(int64_t{}, message->mutable_int64_val());
    case tensorflow::DT_BOOL:
      return call(bool{}, message->mutable_bool_val());
    case tensorflow::DT_INT8:
    case tensorflow::DT_QINT8:
      return call(int8_t{}, message->mutable_int_val());
    case tensorflow::DT_UINT8:
    case tensorflow::DT_QUINT8:
      return call(uint8_t{}, message->mutable_int_val());
    case tensorflow::DT_INT16:
    case tensorflow::DT_QINT16:
      return call(int16_t{}, message->mutable_int_val());
    case tensorflow::DT_UINT16:
    case tensorflow::DT_QUINT16:
      return call(uint16_t{}, message->mutable_int_val());
    default:
      return call(int32_t{}, message->mutable_int_val());
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
  WithField(tensor.dtype(), dst, [&](auto type, auto* field) { AppendScalars<decltype(type)>(tensor, field); });
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
  tensorflow::eas::ArrayProto copy = message;
  bool filled = false;
  WithField(dtype, &copy,
            [&](auto type, auto* field) { filled = CopyScalars<decltype(type)>(*field, dtype, shape, dst); });
  return filled;
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

bool WantedFetches(const Signature& signature, const std::vector<std::string>& names, bool once,
                   std::vector<int>* fetches) {
  fetches->clear();
  for (const std::string& name : names) {
    const int place = signature.FindOutput(name);
    if (place < 0) return false;
    const bool known = std::find(fetches->begin(), fetches->end(), place) != fetches->end();
    if (known && once) return false;
    if (!known) fetches->push_back(place);
  }
  if (names.empty()) {
    fetches->resize(signature.outputs().size());
    std::iota(fetches->begin(), fetches->end(), 0);
  }
  return true;
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
