// SPDX-License-Identifier: Apache-2.0
// What routing reads of a request without decoding it.
#include "src/codec/model_spec.h"

#include <gtest/gtest.h>

#include "differential.h"
#include "kserve_oracle.h"
#include "nlohmann/json.hpp"

namespace processor {
namespace {

using namespace tensorflow::serving;  // NOLINT: the messages
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;

ModelSpecView Peek(std::string_view protocol, std::string_view method, const std::string& bytes) {
  static std::string kept;
  kept = bytes;
  ModelSpecView spec;
  const absl::Status status = PeekModel(*FindMethod(protocol, method), kept, &spec);
  EXPECT_TRUE(status.ok()) << status;
  return spec;
}

void SetSpec(ModelSpec* spec) {
  spec->set_name("ranking");
  spec->mutable_version()->set_value(7);
  spec->set_signature_name("scores");
}

void ExpectSpec(const ModelSpecView& spec) {
  EXPECT_EQ(spec.name, "ranking");
  EXPECT_EQ(spec.version, 7);
  EXPECT_EQ(spec.label, "");
  EXPECT_EQ(spec.signature, "scores");
}

TEST(PeekModelTest, ReadsTheModelSpecOfEveryRequestOfTensorFlowServing) {
  PredictRequest predict;
  SetSpec(predict.mutable_model_spec());
  ExpectSpec(Peek("tfserving", "", predict.SerializeAsString()));
  ExpectSpec(Peek("tfserving", "Predict", predict.SerializeAsString()));
  ClassificationRequest classify;
  SetSpec(classify.mutable_model_spec());
  ExpectSpec(Peek("tfserving", "Classify", classify.SerializeAsString()));
  GetModelMetadataRequest metadata;
  SetSpec(metadata.mutable_model_spec());
  ExpectSpec(Peek("tfserving", "GetModelMetadata", metadata.SerializeAsString()));
  GetModelStatusRequest status;
  SetSpec(status.mutable_model_spec());
  ExpectSpec(Peek("tfserving", "GetModelStatus", status.SerializeAsString()));
  MultiInferenceRequest multi;
  SetSpec(multi.add_tasks()->mutable_model_spec());
  multi.add_tasks()->mutable_model_spec()->set_name("another");
  ExpectSpec(Peek("tfserving", "MultiInference", multi.SerializeAsString()));
  predict.mutable_model_spec()->set_version_label("stable");
  const ModelSpecView spec = Peek("tfserving", "", predict.SerializeAsString());
  EXPECT_EQ(spec.label, "stable");
  EXPECT_EQ(spec.version, std::nullopt);
}

TEST(PeekModelTest, ReadsNameAndVersionOfTheOpenInferenceProtocol) {
  inference::ModelInferRequest infer;
  infer.set_model_name("ranking");
  infer.set_model_version("7");
  ModelSpecView spec = Peek("kserve", "", infer.SerializeAsString());
  EXPECT_EQ(spec.name, "ranking");
  EXPECT_EQ(spec.version, 7);
  inference::ModelReadyRequest ready;
  ready.set_name("ranking");
  ready.set_version("canary");
  spec = Peek("kserve", "ModelReady", ready.SerializeAsString());
  EXPECT_EQ(spec.name, "ranking");
  EXPECT_EQ(spec.version, std::nullopt);
  EXPECT_EQ(spec.label, "canary");
  inference::RepositoryIndexRequest index;
  index.set_repository_name("ranking");
  EXPECT_EQ(Peek("kserve", "RepositoryIndex", index.SerializeAsString()).name, "");
}

TEST(PeekModelTest, OtherBytesContainNoModelSpec) {
  EXPECT_EQ(Peek("tfserving_json", "", "no JSON").name, "");
  EXPECT_EQ(Peek("kserve_json", "infer", "{}").name, "");
  EXPECT_EQ(Peek("eas", "", "\x0a\x01x").signature, "");
}

TEST(PeekModelTest, MalformedBytesAreErrors) {
  ModelSpecView spec;
  for (const auto& [protocol, method] :
       std::vector<std::pair<const char*, const char*>>{{"tfserving", "Predict"},
                                                        {"tfserving", "MultiInference"},
                                                        {"kserve", "ModelInfer"},
                                                        {"kserve", "ModelReady"}}) {
    EXPECT_EQ(PeekModel(*FindMethod(protocol, method), "\x0a\x7f", &spec).code(), absl::StatusCode::kInvalidArgument);
  }
  EXPECT_EQ(PeekModel(*FindMethod("tfserving", "Predict"), "\x0a\x02\x12\x7f", &spec).code(),
            absl::StatusCode::kInvalidArgument);
}

class PeekInputTest : public testing::Test {
 protected:
  static std::string Key(std::string_view protocol, std::string_view method, const std::string& bytes,
                         size_t header_length = 0) {
    std::string key = "before";
    const std::vector<char> copy(bytes.begin(), bytes.end());
    const absl::Status status =
        PeekInput(*FindMethod(protocol, method), {copy.data(), copy.size()}, "user", &key, header_length);
    if (status.ok()) return key;
    EXPECT_EQ(key, "");
    return std::string(absl::StatusCodeToString(status.code()));
  }

  /// The same tensor in every protocol that has inputs of it.
  static void ExpectEverywhere(const Tensor& tensor, const std::string& expected) {
    for (const bool content : {true, false}) {
      PredictRequest predict;
      auto& message = (*predict.mutable_inputs())["user"];
      if (content && tensor.dtype() != tensorflow::DT_STRING) {
        tensor.AsProtoTensorContent(&message);
      } else {
        oracle::ToMessage(tensor, &message);
      }
      EXPECT_EQ(Key("tfserving", "", predict.SerializeAsString()), expected);
      inference::ModelInferRequest infer;
      oracle::AddInput("other", Tensor(tensorflow::DT_INT64, TensorShape({1})), content, &infer);
      oracle::AddInput("user", tensor, content, &infer);
      EXPECT_EQ(Key("kserve", "ModelInfer", infer.SerializeAsString()), expected);
    }
    tensorflow::eas::PredictRequest eas;
    oracle::ToMessage(tensor, &(*eas.mutable_inputs())["user"]);
    EXPECT_EQ(Key("eas", "predict", eas.SerializeAsString()), expected);

    nlohmann::json values = nlohmann::json::array(), shape = {tensor.NumElements()};
    for (int64_t i = 0; i < tensor.NumElements(); ++i) {
      if (tensor.dtype() == tensorflow::DT_STRING) {
        values.push_back(std::string(tensor.flat<tstring>()(i)));
      } else if (tensor.dtype() == tensorflow::DT_INT64) {
        values.push_back(tensor.flat<int64_t>()(i));
      } else {
        values.push_back(tensor.flat<float>()(i));
      }
    }
    nlohmann::json rows = nlohmann::json::array();
    for (const auto& value : values) rows.push_back({{"user", value}, {"other", 1}});
    EXPECT_EQ(Key("tfserving_json", "predict", nlohmann::json{{"instances", rows}}.dump()), expected);
    EXPECT_EQ(Key("tfserving_json", "predict", nlohmann::json{{"inputs", {{"user", values}}}}.dump()), expected);
    EXPECT_EQ(Key("tfserving_json", "regress", nlohmann::json{{"examples", rows}}.dump()), expected);
    nlohmann::json input = {{"name", "user"}, {"datatype", oracle::DatatypeOf(tensor.dtype())}, {"shape", shape}};
    nlohmann::json binary = input;
    input["data"] = values;
    EXPECT_EQ(Key("kserve_json", "infer", nlohmann::json{{"inputs", {input}}}.dump()), expected);
    const std::string raw = oracle::ToRaw(tensor);
    binary["parameters"]["binary_data_size"] = raw.size();
    const std::string header = nlohmann::json{{"inputs", {binary}}}.dump();
    EXPECT_EQ(Key("kserve_json", "infer", header + raw, header.size()), expected);
  }
};

TEST_F(PeekInputTest, ReturnsSingleOrRepeatedValueAsKey) {
  Tensor text(tensorflow::DT_STRING, TensorShape({2}));
  text.flat<tstring>()(0) = text.flat<tstring>()(1) = "user-00000000000000000000000042";
  ExpectEverywhere(text, "user-00000000000000000000000042");
  text.flat<tstring>()(1) = "other";
  ExpectEverywhere(text, "NOT_FOUND");
  Tensor number(tensorflow::DT_INT64, TensorShape({1}));
  number.flat<int64_t>()(0) = -42;
  ExpectEverywhere(number, "-42");
  Tensor numbers(tensorflow::DT_INT64, TensorShape({3}));
  numbers.flat<int64_t>().setConstant(9007199254740993);
  ExpectEverywhere(numbers, "9007199254740993");
  numbers.flat<int64_t>()(2) = 1;
  ExpectEverywhere(numbers, "NOT_FOUND");
  Tensor other(tensorflow::DT_FLOAT, TensorShape({1}));
  other.flat<float>()(0) = 1.5f;
  ExpectEverywhere(other, "NOT_FOUND");
}

TEST_F(PeekInputTest, ReadsFeaturesOfExamplesAndContext) {
  ClassificationRequest classify;
  auto* const list = classify.mutable_input()->mutable_example_list_with_context();
  for (int i = 0; i < 2; ++i) {
    (*list->add_examples()->mutable_features()->mutable_feature())["item"].mutable_int64_list()->add_value(i);
  }
  EXPECT_EQ(Key("tfserving", "Classify", classify.SerializeAsString()), "NOT_FOUND");
  (*list->mutable_context()->mutable_features()->mutable_feature())["user"].mutable_bytes_list()->add_value("u");
  EXPECT_EQ(Key("tfserving", "Classify", classify.SerializeAsString()), "u");
  auto& feature = (*list->mutable_examples(1)->mutable_features()->mutable_feature())["user"];
  feature.mutable_bytes_list()->add_value("u");
  EXPECT_EQ(Key("tfserving", "Regress", classify.SerializeAsString()), "u");
  feature.mutable_bytes_list()->add_value("v");
  EXPECT_EQ(Key("tfserving", "MultiInference", classify.SerializeAsString()), "NOT_FOUND");
  feature.mutable_float_list()->add_value(1);
  EXPECT_EQ(Key("tfserving", "Classify", classify.SerializeAsString()), "NOT_FOUND");
}

TEST_F(PeekInputTest, AbsentInputsAndUnsupportedMethodsAreNotFound) {
  EXPECT_EQ(Key("tfserving", "Predict", ""), "NOT_FOUND");
  EXPECT_EQ(Key("kserve", "", ""), "NOT_FOUND");
  EXPECT_EQ(Key("kserve", "ServerLive", ""), "NOT_FOUND");
  EXPECT_EQ(Key("tfserving_json", "", R"({"instances": [5], "inputs": "user"})"), "NOT_FOUND");
  EXPECT_EQ(Key("tfserving_json", "", R"({"inputs": {"user": "a"}, "instances": [{"user": 1}]})"), "NOT_FOUND");
  EXPECT_EQ(Key("tfserving_json", "", R"({"inputs": {"user": {"b64": "YQ=="}}})"), "a");
}

TEST_F(PeekInputTest, MalformedBytesAreErrors) {
  EXPECT_EQ(Key("tfserving", "Predict", "\x12\x7f"), "INVALID_ARGUMENT");
  EXPECT_EQ(Key("tfserving", "Classify", "\x12\x7f"), "INVALID_ARGUMENT");
  EXPECT_EQ(Key("kserve", "", "\x2a\x7f"), "INVALID_ARGUMENT");
  EXPECT_EQ(Key("tfserving_json", "", "{"), "INVALID_ARGUMENT");
  EXPECT_EQ(Key("kserve_json", "", "{}", 5), "INVALID_ARGUMENT");
}

TEST_F(PeekInputTest, DamagedRequestsDoNotCrash) {
  std::mt19937_64 random(3);
  for (const char* protocol : {"eas", "tfserving", "kserve"}) {
    for (int i = 0; i < 5000; ++i) {
      std::string bytes = oracle::RandomRequest(protocol, &random);
      if (i % 3 != 0) bytes = oracle::Mutated(bytes, &random);
      std::string key;
      ModelSpecView spec;
      const std::vector<char> copy(bytes.begin(), bytes.end());
      const Method& method = *FindMethod(protocol, "");
      for (const char* input : {"x", "id", "tag"}) {
        PeekInput(method, {copy.data(), copy.size()}, input, &key).IgnoreError();
      }
      PeekModel(method, {copy.data(), copy.size()}, &spec).IgnoreError();
    }
  }
}

}  // namespace
}  // namespace processor
