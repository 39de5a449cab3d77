// SPDX-License-Identifier: Apache-2.0
// What a host tells of itself, read back with generated code and another JSON library.
#include "src/codec/descriptions.h"

#include <gtest/gtest.h>

#include "inference.pb.h"
#include "nlohmann/json.hpp"
#include "oracle.h"

namespace processor {
namespace {

using namespace tensorflow::serving;  // NOLINT: the messages
using Json = nlohmann::json;

class DescriptionsTest : public testing::Test {
 protected:
  DescriptionsTest() {
    ModelView ranking{"ranking", {}, 3, {{"stable", 3}, {"next", 5}}};
    ranking.versions.push_back({3, VersionPhase::kReady, absl::OkStatus(), signatures_.get()});
    ranking.versions.push_back({4, VersionPhase::kFailed, absl::NotFoundError("path: \"x\" is not there"), nullptr});
    ranking.versions.push_back({5, VersionPhase::kWarming, absl::OkStatus(), nullptr});
    ranking.versions.push_back({6, VersionPhase::kDraining, absl::OkStatus(), signatures_.get()});
    host_.ready = true;
    host_.models = {ranking, {"empty", {}, 0, {}}};
  }

  absl::StatusOr<std::string> Ask(const char* protocol, const char* method, const ModelSpecView& spec = {},
                                  const std::string& bytes = "") {
    processor::Response response;
    const absl::Status status = Describe(*FindMethod(protocol, method), bytes, spec, host_, &response);
    if (!status.ok()) return status;
    return std::string(response.body.data(), response.body.size());
  }

  template <typename Message>
  Message AskFor(const char* protocol, const char* method, const ModelSpecView& spec = {},
                 const std::string& bytes = "") {
    const absl::StatusOr<std::string> answer = Ask(protocol, method, spec, bytes);
    EXPECT_TRUE(answer.ok()) << answer.status();
    Message message;
    EXPECT_TRUE(message.ParseFromString(answer.value_or("\xff")));
    EXPECT_EQ(message.ByteSizeLong(), answer->size()) << "no byte more than protobuf needs";
    return message;
  }

  Json AskJson(const char* protocol, const char* method, const ModelSpecView& spec = {}) {
    const absl::StatusOr<std::string> answer = Ask(protocol, method, spec);
    EXPECT_TRUE(answer.ok()) << answer.status();
    return answer.ok() ? Json::parse(*answer) : Json();
  }

  const std::unique_ptr<SignatureSet> signatures_ = oracle::MakeSignatures({
      {"serving_default",
       {{"dense", tensorflow::DT_FLOAT, {-1, 13}}, {"tag", tensorflow::DT_STRING, {}, true}},
       {{"prob", tensorflow::DT_HALF, {}}}},
      {"classify",
       {{"inputs", tensorflow::DT_STRING, {-1}}},
       {{"scores", tensorflow::DT_COMPLEX64, {-1, 2}}},
       "tensorflow/serving/classify"},
  });
  HostView host_;
};

TEST_F(DescriptionsTest, GetModelMetadataHoldsTheSignatures) {
  GetModelMetadataRequest request;
  request.add_metadata_field("signature_def");
  const auto answer = AskFor<GetModelMetadataResponse>("tfserving", "GetModelMetadata", {"ranking", {}, {}, {}},
                                                       request.SerializeAsString());
  EXPECT_EQ(answer.model_spec().name(), "ranking");
  EXPECT_EQ(answer.model_spec().version().value(), 3);
  ASSERT_EQ(answer.metadata().count("signature_def"), 1u);
  const auto& any = answer.metadata().at("signature_def");
  EXPECT_EQ(any.type_url(), "type.googleapis.com/tensorflow.serving.SignatureDefMap");
  SignatureDefMap map;
  ASSERT_TRUE(map.ParseFromString(any.value()));
  ASSERT_EQ(map.signature_def().size(), 2u);
  const auto& def = map.signature_def().at("serving_default");
  EXPECT_EQ(def.method_name(), "tensorflow/serving/predict");
  EXPECT_EQ(def.inputs().at("dense").name(), "serving_default_dense:0");
  EXPECT_EQ(def.inputs().at("dense").dtype(), tensorflow::DT_FLOAT);
  EXPECT_EQ(def.inputs().at("dense").tensor_shape().dim(0).size(), -1);
  EXPECT_EQ(def.inputs().at("dense").tensor_shape().dim(1).size(), 13);
  EXPECT_TRUE(def.inputs().at("tag").tensor_shape().unknown_rank());
  EXPECT_EQ(map.signature_def().at("classify").method_name(), "tensorflow/serving/classify");

  EXPECT_EQ(Ask("tfserving", "GetModelMetadata", {"ranking", {}, {}, {}}).status(),
            absl::InvalidArgumentError("metadata_field: none, expected 'signature_def'"));
  request.add_metadata_field("graph");
  EXPECT_EQ(Ask("tfserving", "GetModelMetadata", {"ranking", {}, {}, {}}, request.SerializeAsString()).status(),
            absl::InvalidArgumentError("metadata_field: 'graph', expected 'signature_def'"));
}

TEST_F(DescriptionsTest, GetModelStatusDescribesOneVersionOrAll) {
  auto answer = AskFor<GetModelStatusResponse>("tfserving", "GetModelStatus", {"ranking", {}, {}, {}});
  ASSERT_EQ(answer.model_version_status_size(), 4);
  std::vector<int64_t> numbers;
  for (const auto& version : answer.model_version_status()) numbers.push_back(version.version());
  EXPECT_EQ(numbers, (std::vector<int64_t>{6, 5, 4, 3})) << "the largest first, as TensorFlow Serving lists them";
  EXPECT_EQ(answer.model_version_status(0).state(), ModelVersionStatus::UNLOADING);
  EXPECT_EQ(answer.model_version_status(1).state(), ModelVersionStatus::LOADING);
  EXPECT_EQ(answer.model_version_status(2).state(), ModelVersionStatus::END);
  EXPECT_EQ(answer.model_version_status(2).status().error_code(), 5);
  EXPECT_EQ(answer.model_version_status(2).status().error_message(), "path: \"x\" is not there");
  EXPECT_EQ(answer.model_version_status(3).state(), ModelVersionStatus::AVAILABLE);
  EXPECT_TRUE(answer.model_version_status(3).has_status());
  answer = AskFor<GetModelStatusResponse>("tfserving", "GetModelStatus", {"ranking", {}, "next", {}});
  ASSERT_EQ(answer.model_version_status_size(), 1);
  EXPECT_EQ(answer.model_version_status(0).version(), 5);

  const Json json = AskJson("tfserving_json", "status", {"ranking", 4, {}, {}});
  EXPECT_EQ(json, Json::parse(R"({"model_version_status": [{"version": "4", "state": "END",
      "status": {"error_code": "NOT_FOUND", "error_message": "path: \"x\" is not there"}}]})"));
  EXPECT_EQ(AskJson("tfserving_json", "status", {"ranking", {}, {}, {}})["model_version_status"].size(), 4u);
}

TEST_F(DescriptionsTest, JsonMetadataIsThatOfTensorFlowServing) {
  const Json json = AskJson("tfserving_json", "metadata", {"ranking", {}, "stable", {}});
  EXPECT_EQ(json["model_spec"], Json::parse(R"({"name": "ranking", "signature_name": "", "version": "3"})"));
  const Json& def = json["metadata"]["signature_def"]["signature_def"]["serving_default"];
  EXPECT_EQ(def["inputs"]["dense"], Json::parse(R"({"dtype": "DT_FLOAT", "name": "serving_default_dense:0",
      "tensor_shape": {"dim": [{"size": "-1", "name": ""}, {"size": "13", "name": ""}], "unknown_rank": false}})"));
  EXPECT_EQ(def["inputs"]["tag"]["tensor_shape"], Json::parse(R"({"dim": [], "unknown_rank": true})"));
  EXPECT_EQ(def["method_name"], "tensorflow/serving/predict");
}

TEST_F(DescriptionsTest, ModelMetadataOfTheOpenInferenceProtocol) {
  const auto answer = AskFor<inference::ModelMetadataResponse>("kserve", "ModelMetadata", {"ranking", {}, {}, {}});
  EXPECT_EQ(answer.name(), "ranking");
  ASSERT_EQ(answer.versions_size(), 1);
  EXPECT_EQ(answer.versions(0), "3");
  EXPECT_EQ(answer.platform(), "tensorflow_savedmodel");
  ASSERT_EQ(answer.inputs_size(), 2);
  EXPECT_EQ(answer.inputs(0).datatype(), "FP32");
  EXPECT_EQ(std::vector<int64_t>(answer.inputs(0).shape().begin(), answer.inputs(0).shape().end()),
            (std::vector<int64_t>{-1, 13}));
  EXPECT_EQ(answer.outputs(0).datatype(), "FP16");
  EXPECT_EQ(answer.outputs(0).shape_size(), 0);
  const Json json = AskJson("kserve_json", "metadata", {"ranking", 3, {}, "classify"});
  EXPECT_EQ(json, Json::parse(R"({"name": "ranking", "versions": ["3"], "platform": "tensorflow_savedmodel",
      "inputs": [{"name": "inputs", "datatype": "BYTES", "shape": [-1]}],
      "outputs": [{"name": "scores", "datatype": "DT_COMPLEX64", "shape": [-1, 2]}]})"));
  EXPECT_EQ(Ask("kserve", "ModelMetadata", {"ranking", {}, {}, "none"}).status(),
            absl::NotFoundError("model 'ranking' version 3: no signature 'none'"));
}

TEST_F(DescriptionsTest, ReadinessIsAFlagInMessagesAndAStatusInJson) {
  const auto ready = [this](const ModelSpecView& spec) {
    return AskFor<inference::ModelReadyResponse>("kserve", "ModelReady", spec).ready();
  };
  EXPECT_TRUE(ready({"ranking", {}, {}, {}}));
  EXPECT_FALSE(ready({"ranking", 4, {}, {}}));
  EXPECT_FALSE(ready({"ranking", 6, {}, {}}));
  EXPECT_FALSE(ready({"none", {}, {}, {}}));
  EXPECT_EQ(AskJson("kserve_json", "ready", {"ranking", 3, {}, {}}), Json({{"name", "ranking"}, {"ready", true}}));
  EXPECT_EQ(Ask("kserve_json", "ready", {"ranking", 5, {}, {}}).status(),
            absl::UnavailableError("model 'ranking' version 5: warming, expected a loaded one"));
  EXPECT_EQ(Ask("kserve_json", "ready", {"ranking", 6, {}, {}}).status(),
            absl::UnavailableError("model 'ranking' version 6: draining, expected a ready one"));
  EXPECT_EQ(Ask("kserve_json", "ready", {"none", {}, {}, {}}).status(),
            absl::NotFoundError("model 'none': not served"));

  EXPECT_TRUE(AskFor<inference::ServerLiveResponse>("kserve", "ServerLive").live());
  EXPECT_TRUE(AskFor<inference::ServerReadyResponse>("kserve", "ServerReady").ready());
  EXPECT_TRUE(Ask("kserve_json", "server_ready").ok());
  host_.ready = false;
  EXPECT_FALSE(AskFor<inference::ServerReadyResponse>("kserve", "ServerReady").ready());
  EXPECT_EQ(Ask("kserve_json", "server_ready").status().code(), absl::StatusCode::kUnavailable);
  EXPECT_EQ(AskJson("kserve_json", "live"), Json({{"live", true}}));
}

TEST_F(DescriptionsTest, ServerMetadataNamesTheServerAndTheIndexAllVersions) {
  const auto server = AskFor<inference::ServerMetadataResponse>("kserve", "ServerMetadata");
  EXPECT_EQ(server.name(), "recprocessor");
  EXPECT_FALSE(server.version().empty());
  EXPECT_EQ(server.extensions(0), "binary_tensor_data");
  EXPECT_EQ(AskJson("kserve_json", "server_metadata")["version"], server.version());

  inference::RepositoryIndexRequest request;
  auto index = AskFor<inference::RepositoryIndexResponse>("kserve", "RepositoryIndex");
  ASSERT_EQ(index.models_size(), 4);
  EXPECT_EQ(index.models(0).name(), "ranking");
  EXPECT_EQ(index.models(0).version(), "3");
  EXPECT_EQ(index.models(0).state(), "READY");
  EXPECT_EQ(index.models(1).state(), "UNAVAILABLE");
  EXPECT_EQ(index.models(1).reason(), "path: \"x\" is not there");
  request.set_ready(true);
  index = AskFor<inference::RepositoryIndexResponse>("kserve", "RepositoryIndex", {}, request.SerializeAsString());
  EXPECT_EQ(index.models_size(), 1);
  EXPECT_EQ(Ask("kserve", "RepositoryIndex", {}, "\x0a\x7f").status().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(DescriptionsTest, ErrorsNameMissingModelsAndVersions) {
  const auto words = [this](const ModelSpecView& spec) {
    const absl::Status status = Ask("tfserving_json", "metadata", spec).status();
    return absl::StatusCodeToString(status.code()) + " " + std::string(status.message());
  };
  EXPECT_EQ(words({}), "INVALID_ARGUMENT model: no name, expected one");
  EXPECT_EQ(words({"none", {}, {}, {}}), "NOT_FOUND model 'none': not served");
  EXPECT_EQ(words({"ranking", 9, {}, {}}), "NOT_FOUND model 'ranking' version 9: not served");
  EXPECT_EQ(words({"ranking", {}, "x\n", {}}), "INVALID_ARGUMENT model 'ranking': no version is labeled 'x\\n'");
  EXPECT_EQ(words({"ranking", 4, {}, {}}), "UNAVAILABLE model 'ranking' version 4: failed, expected a loaded one");
  EXPECT_EQ(words({"empty", {}, {}, {}}), "NOT_FOUND model 'empty': no version is served");
}

TEST_F(DescriptionsTest, EveryMethodWithoutCodecIsAnswered) {
  GetModelMetadataRequest request;
  request.add_metadata_field("signature_def");
  for (const Method& method : Methods()) {
    if (method.codec != nullptr) continue;
    const bool asks = method.name == "GetModelMetadata";
    EXPECT_TRUE(Ask(std::string(method.protocol).c_str(), std::string(method.name).c_str(), {"ranking", {}, {}, {}},
                    asks ? request.SerializeAsString() : "")
                    .ok())
        << method.protocol << " " << method.name;
  }
}

}  // namespace
}  // namespace processor
