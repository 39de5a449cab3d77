// SPDX-License-Identifier: Apache-2.0
#include "kserve_oracle.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "scalars.h"

namespace processor::oracle {
namespace {

using inference::InferTensorContents;
using tensorflow::DataType;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;

const std::map<DataType, std::string>& Datatypes() {
  static const auto* const names = new std::map<DataType, std::string>{
      {tensorflow::DT_BOOL, "BOOL"},     {tensorflow::DT_INT8, "INT8"},     {tensorflow::DT_INT16, "INT16"},
      {tensorflow::DT_INT32, "INT32"},   {tensorflow::DT_INT64, "INT64"},   {tensorflow::DT_UINT8, "UINT8"},
      {tensorflow::DT_UINT16, "UINT16"}, {tensorflow::DT_UINT32, "UINT32"}, {tensorflow::DT_UINT64, "UINT64"},
      {tensorflow::DT_HALF, "FP16"},     {tensorflow::DT_BFLOAT16, "BF16"}, {tensorflow::DT_FLOAT, "FP32"},
      {tensorflow::DT_DOUBLE, "FP64"},   {tensorflow::DT_STRING, "BYTES"}};
  return *names;
}

/// Calls `call` with a value of the type of `dtype` and the field that has its scalars. False if there is none.
template <typename Call>
bool WithContents(DataType dtype, InferTensorContents* contents, const Call& call) {
  switch (dtype) {
    case tensorflow::DT_BOOL:
      return call(bool{}, contents->mutable_bool_contents());
    case tensorflow::DT_INT8:
      return call(int8_t{}, contents->mutable_int_contents());
    case tensorflow::DT_INT16:
      return call(int16_t{}, contents->mutable_int_contents());
    case tensorflow::DT_INT32:
      return call(int32_t{}, contents->mutable_int_contents());
    case tensorflow::DT_INT64:
      return call(int64_t{}, contents->mutable_int64_contents());
    case tensorflow::DT_UINT8:
      return call(uint8_t{}, contents->mutable_uint_contents());
    case tensorflow::DT_UINT16:
      return call(uint16_t{}, contents->mutable_uint_contents());
    case tensorflow::DT_UINT32:
      return call(uint32_t{}, contents->mutable_uint_contents());
    case tensorflow::DT_UINT64:
      return call(uint64_t{}, contents->mutable_uint64_contents());
    case tensorflow::DT_FLOAT:
      return call(float{}, contents->mutable_fp32_contents());
    case tensorflow::DT_DOUBLE:
      return call(double{}, contents->mutable_fp64_contents());
    case tensorflow::DT_STRING:
      return call(tstring{}, contents->mutable_bytes_contents());
    default:
      return false;
  }
}

}  // namespace

bool Wanted(const inference::ModelInferRequest& request, const SignatureSet& signatures, const Signature** signature,
            std::vector<Tensor>* feeds, std::vector<int>* fetches) {
  std::string name;
  const auto parameter = request.parameters().find("signature_name");
  if (parameter != request.parameters().end()) {
    const auto choice = parameter->second.parameter_choice_case();
    if (choice == inference::InferParameter::kStringParam) {
      name = parameter->second.string_param();
    } else if (choice != inference::InferParameter::PARAMETER_CHOICE_NOT_SET) {
      return false;
    }
  }
  *signature = signatures.Find(name);
  if (*signature == nullptr) return false;
  const int raw = request.raw_input_contents_size();
  if (raw > 0 && raw != request.inputs_size()) return false;
  std::vector<int> seen((*signature)->inputs().size());
  feeds->assign(seen.size(), Tensor());
  for (int i = 0; i < request.inputs_size(); ++i) {
    const auto& input = request.inputs(i);
    const int place = (*signature)->FindInput(input.name());
    if (place < 0 || ++seen[place] > 1) return false;
    const TensorSpec& spec = (*signature)->inputs()[place];
    if (input.datatype() != DatatypeOf(spec.dtype)) return false;
    TensorShape shape;
    const std::vector<int64_t> dims(input.shape().begin(), input.shape().end());
    if (dims.size() > 254 || std::any_of(dims.begin(), dims.end(), [](int64_t dim) { return dim < 0; })) return false;
    if (!TensorShape::BuildTensorShape(dims, &shape).ok() || !spec.shape.IsCompatibleWith(shape)) return false;
    Tensor* const feed = &(*feeds)[place];
    if (raw > 0) {
      if (input.has_contents() && input.contents().ByteSizeLong() > 0) return false;
      if (!FromRaw(request.raw_input_contents(i), spec.dtype, shape, feed)) return false;
    } else if (!HasContents(spec.dtype) || !FromContents(input.contents(), spec.dtype, shape, feed)) {
      return false;
    }
  }
  if (std::count(seen.begin(), seen.end(), 0) > 0) return false;
  std::vector<std::string> names;
  for (const auto& output : request.outputs()) names.push_back(output.name());
  return WantedFetches(**signature, names, /*once=*/false, fetches);
}

std::string CompareAnswer(const inference::ModelInferRequest& message, const DecodedRequest& request,
                          const std::string& body) {
  const Tensor& tensor = request.feeds[0];
  inference::ModelInferResponse response;
  if (!response.ParseFromString(body)) return "response: cannot be parsed";
  Tensor back;
  if (response.outputs_size() != 1 || !OutputOf(response, 0, tensor.dtype(), &back)) return "response: not the dtype";
  if (!Same(back, tensor)) return "response: other values";
  if (response.id() != message.id()) return "response: another id";
  if (response.model_name() != (message.model_name().empty() ? "other" : message.model_name())) {
    return "response: another model";
  }
  const bool raw = message.raw_input_contents_size() > 0 || !HasContents(tensor.dtype());
  return (response.raw_output_contents_size() == 1) == raw ? "" : "response: the other kind of contents";
}

std::string DatatypeOf(DataType dtype) {
  const auto found = Datatypes().find(dtype);
  return found == Datatypes().end() ? "none" : found->second;
}

bool HasContents(DataType dtype) { return dtype != tensorflow::DT_HALF && dtype != tensorflow::DT_BFLOAT16; }

void ToContents(const Tensor& tensor, InferTensorContents* dst) {
  WithContents(tensor.dtype(), dst,
               [&](auto type, auto* field) { return AppendScalars<decltype(type)>(tensor, field), true; });
}

bool FromContents(const InferTensorContents& contents, DataType dtype, const TensorShape& shape, Tensor* dst) {
  InferTensorContents copy = contents;
  return WithContents(dtype, &copy,
                      [&](auto type, auto* field) { return CopyScalars<decltype(type)>(*field, dtype, shape, dst); });
}

std::string ToRaw(const Tensor& tensor) {
  if (tensor.dtype() != tensorflow::DT_STRING) return std::string(tensor.tensor_data());
  std::string raw;
  for (int64_t i = 0; i < tensor.NumElements(); ++i) {
    const tstring& text = tensor.flat<tstring>()(i);
    for (int shift = 0; shift < 32; shift += 8) raw.push_back(static_cast<char>(text.size() >> shift));
    raw.append(text.data(), text.size());
  }
  return raw;
}

bool FromRaw(const std::string& raw, DataType dtype, const TensorShape& shape, Tensor* dst) {
  if (dtype != tensorflow::DT_STRING) {
    const auto width = static_cast<size_t>(tensorflow::DataTypeSize(dtype));
    if (raw.size() % width != 0 || static_cast<int64_t>(raw.size() / width) != shape.num_elements()) return false;
    if (dtype == tensorflow::DT_BOOL && raw.find_first_not_of(std::string("\0\1", 2)) != std::string::npos)
      return false;
    *dst = Tensor(dtype, shape);
    if (!raw.empty()) std::memcpy(dst->data(), raw.data(), raw.size());
    return true;
  }
  std::vector<std::string> strings;
  for (size_t at = 0; at < raw.size();) {
    if (raw.size() - at < 4) return false;
    uint32_t size = 0;
    for (int i = 3; i >= 0; --i) size = size << 8 | static_cast<uint8_t>(raw[at + i]);
    at += 4;
    if (size > raw.size() - at) return false;
    strings.push_back(raw.substr(at, size));
    at += size;
  }
  if (static_cast<int64_t>(strings.size()) != shape.num_elements()) return false;
  *dst = Tensor(dtype, shape);
  for (size_t i = 0; i < strings.size(); ++i) dst->flat<tstring>()(i) = strings[i];
  return true;
}

void AddInput(const std::string& name, const Tensor& tensor, bool raw, inference::ModelInferRequest* request) {
  auto* const input = request->add_inputs();
  input->set_name(name);
  input->set_datatype(DatatypeOf(tensor.dtype()));
  for (int i = 0; i < tensor.dims(); ++i) input->add_shape(tensor.dim_size(i));
  if (raw) {
    request->add_raw_input_contents(ToRaw(tensor));
  } else {
    ToContents(tensor, input->mutable_contents());
  }
}

bool OutputOf(const inference::ModelInferResponse& response, int i, DataType dtype, Tensor* dst) {
  const auto& output = response.outputs(i);
  TensorShape shape;
  for (const int64_t dim : output.shape()) shape.AddDim(dim);
  if (output.datatype() != DatatypeOf(dtype)) return false;
  if (response.raw_output_contents_size() == 0) return FromContents(output.contents(), dtype, shape, dst);
  return !output.has_contents() && FromRaw(response.raw_output_contents(i), dtype, shape, dst);
}

std::string RandomKserveRequest(std::mt19937_64* random) {
  inference::ModelInferRequest request;
  const auto coin = [random] { return (*random)() % 2 == 0; };
  const bool raw = coin();
  if (coin()) request.set_id("request " + std::to_string((*random)() % 1000));
  if (coin()) request.set_model_name("model");
  if (coin()) request.set_model_version(coin() ? "7" : "stable");
  if (coin()) (*request.mutable_parameters())["priority"].set_int64_param(1);
  if ((*random)() % 4 == 0) {
    const auto rows = static_cast<int64_t>((*random)() % 4);
    AddInput("dense", RandomTensor(tensorflow::DT_FLOAT, TensorShape({rows, 3}), (*random)()), raw, &request);
    AddInput(coin() ? "id" : "wide_id:0", RandomTensor(tensorflow::DT_INT64, TensorShape({rows}), (*random)()), raw,
             &request);
    AddInput("tag", RandomTensor(tensorflow::DT_STRING, TensorShape({rows, 2}), (*random)()), raw, &request);
    if (coin()) request.add_outputs()->set_name("prob");
  } else {
    const std::vector<DataType> dtypes = DtypesOf("kserve");
    const DataType dtype = dtypes[(*random)() % dtypes.size()];
    (*request.mutable_parameters())["signature_name"].set_string_param(tensorflow::DataType_Name(dtype));
    TensorShape shape;
    for (int rank = static_cast<int>((*random)() % 4); rank > 0; --rank) {
      shape.AddDim(static_cast<int64_t>((*random)() % 6));
    }
    AddInput("x", RandomTensor(dtype, shape, (*random)()), raw || !HasContents(dtype), &request);
    if (coin()) request.add_outputs()->set_name("x");
  }
  return request.SerializeAsString();
}

}  // namespace processor::oracle
