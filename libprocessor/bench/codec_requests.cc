// SPDX-License-Identifier: Apache-2.0
#include "codec_requests.h"

#include <cstring>

#include "kserve_oracle.h"
#include "nlohmann/json.hpp"

namespace processor::bench {
namespace {

using Json = nlohmann::ordered_json;
using tensorflow::Tensor;

/// Elements [begin, end) as a flat list.
Json Values(const Tensor& tensor, int64_t begin, int64_t end) {
  Json values = Json::array();
  for (int64_t i = begin; i < end; ++i) {
    if (tensor.dtype() == tensorflow::DT_STRING) {
      values.push_back(std::string(tensor.flat<tensorflow::tstring>()(i)));
    } else if (tensor.dtype() == tensorflow::DT_INT64) {
      values.push_back(tensor.flat<int64_t>()(i));
    } else {
      values.push_back(tensor.flat<float>()(i));
    }
  }
  return values;
}

/// Row `row` as a value or a list; tensors have one or two dimensions.
Json Row(const Tensor& tensor, int64_t row) {
  if (tensor.dims() == 1) return Values(tensor, row, row + 1)[0];
  return Values(tensor, row * tensor.dim_size(1), (row + 1) * tensor.dim_size(1));
}

std::string RowsBody(const Signature& signature, const std::vector<Tensor>& tensors) {
  Json instances = Json::array();
  for (int64_t row = 0; row < tensors[0].dim_size(0); ++row) {
    Json instance;
    for (size_t i = 0; i < tensors.size(); ++i) instance[signature.inputs()[i].alias] = Row(tensors[i], row);
    instances.push_back(std::move(instance));
  }
  Json body;
  body["instances"] = std::move(instances);
  return body.dump();
}

std::string ColumnsBody(const Signature& signature, const std::vector<Tensor>& tensors) {
  Json body;
  for (size_t i = 0; i < tensors.size(); ++i) {
    Json column = Json::array();
    for (int64_t row = 0; row < tensors[i].dim_size(0); ++row) column.push_back(Row(tensors[i], row));
    body["inputs"][signature.inputs()[i].alias] = std::move(column);
  }
  return body.dump();
}

CodecRequest InferBody(const Signature& signature, const std::vector<Tensor>& tensors, bool binary) {
  Json body;
  std::string raw;
  for (size_t i = 0; i < tensors.size(); ++i) {
    Json input;
    input["name"] = signature.inputs()[i].alias;
    input["datatype"] = oracle::DatatypeOf(tensors[i].dtype());
    input["shape"] = Json::array();
    for (int d = 0; d < tensors[i].dims(); ++d) input["shape"].push_back(tensors[i].dim_size(d));
    if (binary) {
      const std::string contents = oracle::ToRaw(tensors[i]);
      input["parameters"]["binary_data_size"] = contents.size();
      raw += contents;
    } else {
      input["data"] = Values(tensors[i], 0, tensors[i].NumElements());
    }
    body["inputs"].push_back(std::move(input));
  }
  const std::string header = body.dump();
  return {"kserve_json", binary ? "binary" : "data", header + raw, binary ? header.size() : 0};
}

CodecRequest InferBytes(const Signature& signature, const std::vector<Tensor>& tensors, bool raw) {
  inference::ModelInferRequest request;
  request.set_model_name("wdl");
  for (size_t i = 0; i < tensors.size(); ++i) oracle::AddInput(signature.inputs()[i].alias, tensors[i], raw, &request);
  return {"kserve", raw ? "raw" : "typed", request.SerializeAsString(), 0};
}

}  // namespace

std::vector<CodecRequest> MakeCodecRequests(const Signature& signature, const std::vector<Tensor>& tensors) {
  return {{"tfserving_json", "rows", RowsBody(signature, tensors), 0},
          {"tfserving_json", "columns", ColumnsBody(signature, tensors), 0},
          InferBytes(signature, tensors, true),
          InferBytes(signature, tensors, false),
          InferBody(signature, tensors, true),
          InferBody(signature, tensors, false)};
}

}  // namespace processor::bench
