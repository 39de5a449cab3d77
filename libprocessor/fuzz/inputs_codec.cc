// SPDX-License-Identifier: Apache-2.0
// Requests for fuzz_codec.cc.
#include <cstdlib>
#include <string_view>

#include "differential.h"
#include "fuzz_kinds.h"
#include "inputs.h"
#include "prediction_log.pb.h"

namespace processor::fuzz {

const char* const kTarget = "fuzz_codec";

namespace {

using tensorflow::serving::MultiInferenceRequest;

std::string RandomMessage(std::string_view protocol, std::mt19937_64* random) {
  std::string bytes = oracle::RandomRequest(protocol, random);
  return (*random)() % 2 == 0 ? oracle::Rearranged(protocol, bytes, random) : bytes;
}

void SetExamples(tensorflow::serving::Input* input, std::mt19937_64* random) {
  const bool with_context = (*random)() % 2 == 0;
  auto* const plain = input->mutable_example_list();
  for (int i = 1 + static_cast<int>((*random)() % 3); i > 0; --i) {
    auto& features = *plain->add_examples()->mutable_features()->mutable_feature();
    features["x"].mutable_int64_list()->add_value(static_cast<int64_t>((*random)() % 3));
    features["tag"].mutable_bytes_list()->add_value("text");
  }
  if (!with_context) return;
  tensorflow::serving::ExampleListWithContext list;
  list.mutable_examples()->Swap(plain->mutable_examples());
  (*list.mutable_context()->mutable_features()->mutable_feature())["user"].mutable_float_list()->add_value(1.5f);
  *input->mutable_example_list_with_context() = list;
}

std::string RandomExamples(std::string_view method, std::mt19937_64* random) {
  if (method != "MultiInference") {
    tensorflow::serving::ClassificationRequest request;
    request.mutable_model_spec()->set_name("m");
    request.mutable_model_spec()->set_signature_name(method == "Classify" ? "classify" : "regress");
    SetExamples(request.mutable_input(), random);
    return request.SerializeAsString();
  }
  MultiInferenceRequest request;
  for (const char* signature : {"classify", "regress"}) {
    auto* const task = request.add_tasks();
    task->mutable_model_spec()->set_signature_name(signature);
    task->set_method_name(std::string("tensorflow/serving/") + signature);
  }
  SetExamples(request.mutable_input(), random);
  return request.SerializeAsString();
}

std::string RandomJson(const Kind& kind, std::mt19937_64* random) {
  static const auto* const predict = new std::vector<std::string>{
      R"({"instances": [{"x": [1.5, -2e3], "id": 3, "tag": "a"}, {"id": -4, "x": [0, NaN], "tag": {"b64": "YQ=="}}]})",
      R"({"inputs": {"x": [[1], [2]], "id": [1, 2], "tag": ["\u00e4", "\n"]}})",
      R"({"signature_name": "one", "inputs": [[1, -128], [127, 0]]})",
      R"({"signature_name": "one", "instances": [1, 2, 3]})",
  };
  static const auto* const examples = new std::vector<std::string>{
      R"({"examples": [{"x": 1, "tag": ["a", {"b64": "YQ=="}]}, {"f": [1, 2.5, -Infinity], "b": true}],
          "signature_name": "classify", "context": {"user": "u"}})",
      R"({"signature_name": "regress", "examples": [{}, {"x": []}]})",
  };
  static const auto* const infer = new std::vector<std::string>{
      R"({"id": "1", "inputs": [{"name": "x", "shape": [2, 1], "datatype": "FP32", "data": [[1], [2]]},
          {"name": "id", "shape": [1], "datatype": "INT64", "data": [7]},
          {"name": "tag", "shape": [1], "datatype": "BYTES", "data": ["a"]}],
          "outputs": [{"name": "prob", "parameters": {"binary_data": true}}]})",
      R"({"parameters": {"signature_name": "one", "binary_data_output": true},
          "inputs": [{"name": "x", "shape": [3], "datatype": "INT8", "data": [1, 2, 3]}]})",
  };
  const auto& seeds = kind.method == "predict" ? *predict : kind.method == "infer" ? *infer : *examples;
  std::string text = seeds[(*random)() % seeds.size()];
  if (!kind.binary) return text;
  return R"({"inputs": [{"name": "x", "shape": [1], "datatype": "FP32", "parameters": {"binary_data_size": 4}},
      {"name": "id", "shape": [1], "datatype": "INT64", "parameters": {"binary_data_size": 8}},
      {"name": "tag", "shape": [1], "datatype": "BYTES", "parameters": {"binary_data_size": 5}}]})" +
         std::string("\0\0\x80\x3f\1\0\0\0\0\0\0\0\1\0\0\0a", 17);
}

}  // namespace

std::string RandomInput(int number, std::mt19937_64* random) {
  const auto index = static_cast<size_t>(number) % Kinds().size();
  const Kind& kind = Kinds()[index];
  std::string bytes;
  if (kind.check == Check::kRun) {
    bytes = kind.protocol == "tfserving" ? RandomExamples(kind.method, random) : RandomJson(kind, random);
  } else if (kind.check == Check::kAsk) {
    tensorflow::serving::GetModelMetadataRequest request;
    request.mutable_model_spec()->set_name("m");
    if ((*random)() % 2 == 0) request.add_metadata_field("signature_def");
    bytes = request.SerializeAsString();
  } else {
    bytes = RandomMessage(kind.protocol, random);
  }
  if (kind.check == Check::kRecord) {
    tensorflow::serving::PredictionLog log;
    if (!log.mutable_predict_log()->mutable_request()->ParseFromString(bytes)) std::abort();
    bytes = log.SerializeAsString();
  }
  return static_cast<char>(index) + bytes;
}

std::string DamagedInput(const std::string& input, std::mt19937_64* random) {
  return input[0] + oracle::Mutated(std::string_view(input).substr(1), random);
}

}  // namespace processor::fuzz
