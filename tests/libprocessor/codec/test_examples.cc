// SPDX-License-Identifier: Apache-2.0
// Classify, Regress and MultiInference as messages and as JSON, compared with generated code.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "nlohmann/json.hpp"
#include "oracle.h"

namespace processor {
namespace {

using namespace tensorflow::serving;  // NOLINT: the messages
using tensorflow::Example;
using tensorflow::Tensor;
using tensorflow::TensorShape;
using tensorflow::tstring;

constexpr const char* kClassify = "tensorflow/serving/classify";
constexpr const char* kRegress = "tensorflow/serving/regress";

Tensor Strings(const std::vector<std::string>& values, const TensorShape& shape) {
  Tensor tensor(tensorflow::DT_STRING, shape);
  for (size_t i = 0; i < values.size(); ++i) tensor.flat<tstring>()(i) = values[i];
  return tensor;
}

Tensor Floats(const std::vector<float>& values, const TensorShape& shape) {
  Tensor tensor(tensorflow::DT_FLOAT, shape);
  for (size_t i = 0; i < values.size(); ++i) tensor.flat<float>()(i) = values[i];
  return tensor;
}

class ExamplesTest : public testing::Test {
 protected:
  ExamplesTest() {
    const oracle::Spec inputs{"inputs", tensorflow::DT_STRING, {-1}};
    const oracle::Spec classes{"classes", tensorflow::DT_STRING, {-1, -1}};
    const oracle::Spec scores{"scores", tensorflow::DT_FLOAT, {-1, -1}};
    const oracle::Spec outputs{"outputs", tensorflow::DT_FLOAT, {}, true};
    signatures_ = oracle::MakeSignatures({
        {"serving_default", {inputs}, {classes, scores}, kClassify},
        {"scores_only", {inputs}, {scores}, kClassify},
        {"classes_only", {inputs}, {classes}, kClassify},
        {"regress", {inputs}, {outputs}, kRegress},
        {"predict", {inputs}, {outputs}},
        {"no_scores", {inputs}, {{"other", tensorflow::DT_FLOAT, {}}}, kClassify},
        {"two_inputs", {inputs, {"more", tensorflow::DT_STRING, {-1}}}, {outputs}, kRegress},
    });
  }

  absl::Status Decode(const char* protocol, const char* method, const std::string& bytes) {
    bytes_ = bytes;
    codec_ = FindCodec(protocol, method);
    return codec_->Decode(bytes_, *signatures_, {}, &request_);
  }

  absl::StatusOr<std::string> Encode(const std::vector<Tensor>& outputs) {
    processor::Response encoded;
    const absl::Status status = codec_->Encode(request_, outputs, {7, "url"}, &encoded);
    if (!status.ok()) return status;
    return std::string(encoded.body.data(), encoded.body.size());
  }

  template <typename Message>
  Message EncodeAs(const std::vector<Tensor>& outputs) {
    const absl::StatusOr<std::string> bytes = Encode(outputs);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    Message message;
    EXPECT_TRUE(message.ParseFromString(*bytes));
    EXPECT_EQ(message.ByteSizeLong(), bytes->size()) << "no byte more than protobuf needs";
    return message;
  }

  std::vector<std::string> Feed() const {
    const auto flat = request_.feeds[0].flat<tstring>();
    return {flat.data(), flat.data() + flat.size()};
  }

  static Example MakeExample(int64_t id) {
    Example example;
    auto& features = *example.mutable_features()->mutable_feature();
    features["id"].mutable_int64_list()->add_value(id);
    features["tag"].mutable_bytes_list()->add_value(std::string("a\0b", 3));
    return example;
  }

  std::unique_ptr<SignatureSet> signatures_;
  std::string bytes_;
  const Codec* codec_ = nullptr;
  DecodedRequest request_;
};

TEST_F(ExamplesTest, ClassifyFeedsExamplesAndReturnsLabelsAndScores) {
  ClassificationRequest message;
  message.mutable_model_spec()->set_name("m");
  for (const int64_t id : {1, 2}) *message.mutable_input()->mutable_example_list()->add_examples() = MakeExample(id);
  ASSERT_TRUE(Decode("tfserving", "Classify", message.SerializeAsString()).ok());
  EXPECT_EQ(request_.model_name, "m");
  const auto& examples = message.input().example_list().examples();
  EXPECT_EQ(Feed(), (std::vector<std::string>{examples[0].SerializeAsString(), examples[1].SerializeAsString()}));
  EXPECT_EQ(request_.fetches, (std::vector<int>{0, 1}));

  const auto response = EncodeAs<ClassificationResponse>(
      {Strings({"a", "", "c", "d"}, TensorShape({2, 2})), Floats({0.5f, 0, -0.0f, 4}, TensorShape({2, 2}))});
  EXPECT_EQ(response.model_spec().name(), "m");
  EXPECT_EQ(response.model_spec().version().value(), 7);
  EXPECT_EQ(response.model_spec().signature_name(), "serving_default");
  ASSERT_EQ(response.result().classifications_size(), 2);
  EXPECT_EQ(response.result().classifications(0).classes(0).label(), "a");
  EXPECT_EQ(response.result().classifications(0).classes(0).score(), 0.5f);
  EXPECT_EQ(response.result().classifications(0).classes(1).label(), "");
  EXPECT_TRUE(std::signbit(response.result().classifications(1).classes(0).score()));
  EXPECT_EQ(response.result().classifications(1).classes(1).score(), 4);
}

TEST_F(ExamplesTest, ModelsMayHaveOnlyScoresOrOnlyClasses) {
  ClassificationRequest message;
  *message.mutable_input()->mutable_example_list()->add_examples() = MakeExample(1);
  message.mutable_model_spec()->set_signature_name("scores_only");
  ASSERT_TRUE(Decode("tfserving", "Classify", message.SerializeAsString()).ok());
  auto response = EncodeAs<ClassificationResponse>({Floats({1, 2}, TensorShape({1, 2}))});
  EXPECT_EQ(response.result().classifications(0).classes(1).score(), 2);
  EXPECT_EQ(response.result().classifications(0).classes(1).label(), "");
  message.mutable_model_spec()->set_signature_name("classes_only");
  ASSERT_TRUE(Decode("tfserving", "Classify", message.SerializeAsString()).ok());
  response = EncodeAs<ClassificationResponse>({Strings({"x", "y"}, TensorShape({1, 2}))});
  EXPECT_EQ(response.result().classifications(0).classes(1).label(), "y");
  EXPECT_EQ(response.result().classifications(0).classes(1).score(), 0);
}

TEST_F(ExamplesTest, ContextIsMergedIntoEveryExample) {
  RegressionRequest message;
  message.mutable_model_spec()->set_signature_name("regress");
  auto* const list = message.mutable_input()->mutable_example_list_with_context();
  for (const int64_t id : {1, 2}) *list->add_examples() = MakeExample(id);
  auto& context = *list->mutable_context()->mutable_features()->mutable_feature();
  context["user"].mutable_int64_list()->add_value(77);
  context["id"].mutable_int64_list()->add_value(99);
  ASSERT_TRUE(Decode("tfserving", "Regress", message.SerializeAsString()).ok());
  for (const int64_t id : {1, 2}) {
    Example merged;
    ASSERT_TRUE(merged.ParseFromString(Feed()[id - 1]));
    const auto& features = merged.features().feature();
    EXPECT_EQ(features.at("user").int64_list().value(0), 77);
    EXPECT_EQ(features.at("id").int64_list().value(0), id) << "the example's own comes last";
  }
  for (const TensorShape& shape : {TensorShape({2}), TensorShape({2, 1})}) {
    const auto response = EncodeAs<RegressionResponse>({Floats({0.25f, -1}, shape)});
    ASSERT_EQ(response.result().regressions_size(), 2);
    EXPECT_EQ(response.result().regressions(1).value(), -1);
  }
}

TEST_F(ExamplesTest, MergesSplitMessagesAndLaterKindWins) {
  RegressionRequest first, second;
  first.mutable_model_spec()->set_signature_name("regress");
  *first.mutable_input()->mutable_example_list()->add_examples() = MakeExample(1);
  *second.mutable_input()->mutable_example_list()->add_examples() = MakeExample(2);
  ASSERT_TRUE(Decode("tfserving", "Regress", first.SerializeAsString() + second.SerializeAsString()).ok());
  EXPECT_EQ(Feed().size(), 2u);
  auto* const list = second.mutable_input()->mutable_example_list_with_context();
  *list->add_examples() = MakeExample(3);
  (*list->mutable_context()->mutable_features()->mutable_feature())["c"].mutable_int64_list()->add_value(1);
  ASSERT_TRUE(Decode("tfserving", "Regress", first.SerializeAsString() + second.SerializeAsString()).ok());
  EXPECT_EQ(Feed().size(), 1u);
  RegressionRequest again = second;
  again.mutable_input()->mutable_example_list_with_context()->clear_examples();
  ASSERT_TRUE(Decode("tfserving", "Regress",
                     first.SerializeAsString() + second.SerializeAsString() + again.SerializeAsString() +
                         again.SerializeAsString())
                  .ok());
  RegressionRequest joined;
  ASSERT_TRUE(joined.ParseFromString(bytes_));
  Example expected = joined.input().example_list_with_context().context(), merged;
  expected.MergeFrom(joined.input().example_list_with_context().examples(0));
  ASSERT_TRUE(merged.ParseFromString(Feed()[0]));
  EXPECT_EQ(merged.features().feature_size(), expected.features().feature_size());
}

TEST_F(ExamplesTest, MultiInferenceRunsEveryTask) {
  MultiInferenceRequest message;
  *message.mutable_input()->mutable_example_list()->add_examples() = MakeExample(1);
  const auto add = [&message](const char* signature, const char* method) {
    auto* const task = message.add_tasks();
    task->mutable_model_spec()->set_name("m");
    task->mutable_model_spec()->set_signature_name(signature);
    task->set_method_name(method);
  };
  add("regress", kRegress);
  add("serving_default", kClassify);
  add("scores_only", kClassify);
  ASSERT_TRUE(Decode("tfserving", "MultiInference", message.SerializeAsString()).ok());
  EXPECT_EQ(request_.signature->name(), "regress");
  ASSERT_EQ(request_.next.size(), 2u);
  EXPECT_EQ(request_.next[0].signature->name(), "serving_default");
  EXPECT_EQ(request_.next[0].feeds[0].SharesBufferWith(request_.feeds[0]), true);

  const auto response =
      EncodeAs<MultiInferenceResponse>({Floats({3}, TensorShape({1})), Strings({"a"}, TensorShape({1, 1})),
                                        Floats({5}, TensorShape({1, 1})), Floats({6, 7}, TensorShape({1, 2}))});
  ASSERT_EQ(response.results_size(), 3);
  EXPECT_EQ(response.results(0).regression_result().regressions(0).value(), 3);
  EXPECT_EQ(response.results(0).model_spec().signature_name(), "regress");
  EXPECT_EQ(response.results(1).classification_result().classifications(0).classes(0).label(), "a");
  EXPECT_EQ(response.results(2).classification_result().classifications(0).classes(1).score(), 7);
  EXPECT_EQ(response.results(2).model_spec().name(), "m");

  add("regress", kRegress);
  EXPECT_EQ(Decode("tfserving", "MultiInference", message.SerializeAsString()),
            absl::InvalidArgumentError("tasks: signature 'regress' twice, expected once"));
  message.mutable_tasks(3)->mutable_model_spec()->set_name("n");
  EXPECT_EQ(
      Decode("tfserving", "MultiInference", message.SerializeAsString()),
      absl::InvalidArgumentError("task 3: model_spec of another model or version, expected that of the first task"));
  message.clear_tasks();
  add("predict", "tensorflow/serving/predict");
  EXPECT_EQ(Decode("tfserving", "MultiInference", message.SerializeAsString()).code(),
            absl::StatusCode::kUnimplemented);
  message.clear_tasks();
  EXPECT_EQ(Decode("tfserving", "MultiInference", message.SerializeAsString()),
            absl::InvalidArgumentError("tasks: 0, expected 1 to 1000"));
}

TEST_F(ExamplesTest, ErrorsNameTheSignature) {
  ClassificationRequest message;
  EXPECT_EQ(Decode("tfserving", "Classify", message.SerializeAsString()),
            absl::InvalidArgumentError("input: no examples, expected at least one"));
  *message.mutable_input()->mutable_example_list()->add_examples() = MakeExample(1);
  message.mutable_model_spec()->set_signature_name("regress");
  EXPECT_EQ(Decode("tfserving", "Classify", message.SerializeAsString()),
            absl::InvalidArgumentError("signature 'regress': method name 'tensorflow/serving/regress', expected "
                                       "'tensorflow/serving/classify'"));
  message.mutable_model_spec()->set_signature_name("no_scores");
  EXPECT_EQ(Decode("tfserving", "Classify", message.SerializeAsString()).code(), absl::StatusCode::kFailedPrecondition);
  message.mutable_model_spec()->set_signature_name("two_inputs");
  EXPECT_EQ(Decode("tfserving", "Regress", message.SerializeAsString()).code(), absl::StatusCode::kFailedPrecondition);
  message.mutable_model_spec()->set_signature_name("regress");
  ASSERT_TRUE(Decode("tfserving", "Regress", message.SerializeAsString()).ok());
  EXPECT_EQ(Encode({Floats({1, 2}, TensorShape({2}))}).status(),
            absl::FailedPreconditionError("signature 'regress': output 'outputs' of DT_FLOAT and shape [2], expected "
                                          "DT_FLOAT and shape [1] or [1,1]"));
  for (const char* damaged : {"\x12\x7f", "\x0a\x02\x12\x7f", "\x12\x02\x0a\x7f", "\x12\x04\x0a\x02\x0a\x7f"}) {
    EXPECT_EQ(Decode("tfserving", "Regress", damaged).code(), absl::StatusCode::kInvalidArgument);
  }
}

TEST_F(ExamplesTest, BoundsRepetitionOfContext) {
  ClassificationRequest message;
  auto* const list = message.mutable_input()->mutable_example_list_with_context();
  (*list->mutable_context()->mutable_features()->mutable_feature())["c"].mutable_bytes_list()->add_value(
      std::string(1 << 20, 'x'));
  for (int i = 0; i < 100; ++i) list->add_examples();
  const absl::Status status = Decode("tfserving", "Classify", message.SerializeAsString());
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  EXPECT_NE(status.message().find("for 100 examples, expected at most 64 MiB in all"), std::string::npos) << status;
}

TEST_F(ExamplesTest, JsonAndProtobufExamplesAreEqual) {
  const char* const body = R"({"signature_name": "regress", "context": {"user": "u"}, "examples": [
      {"names": ["foo", {"b64": "aGVsbG8="}], "ratings": [8.0, NaN, Infinity, 1], "age": 20, "mixed": [1, true, false]},
      {"names": "baz", "ratings": -Infinity, "none": [], "far": [2, 2.5]}]})";
  ASSERT_TRUE(Decode("tfserving_json", "regress", body).ok()) << Decode("tfserving_json", "regress", body);
  Example first, second;
  ASSERT_TRUE(first.ParseFromString(Feed()[0]) && second.ParseFromString(Feed()[1]));
  const auto& a = first.features().feature();
  EXPECT_EQ(a.at("user").bytes_list().value(0), "u");
  EXPECT_EQ(a.at("names").bytes_list().value(1), "hello");
  ASSERT_EQ(a.at("ratings").float_list().value_size(), 4);
  EXPECT_TRUE(std::isnan(a.at("ratings").float_list().value(1)));
  EXPECT_EQ(a.at("ratings").float_list().value(2), std::numeric_limits<float>::infinity());
  EXPECT_EQ(a.at("ratings").float_list().value(3), 1);
  EXPECT_EQ(a.at("age").int64_list().value(0), 20);
  EXPECT_EQ(a.at("mixed").int64_list().value(1), 1);
  const auto& b = second.features().feature();
  EXPECT_EQ(b.at("ratings").float_list().value(0), -std::numeric_limits<float>::infinity());
  EXPECT_EQ(b.at("none").kind_case(), tensorflow::Feature::KIND_NOT_SET);
  EXPECT_EQ(b.at("far").float_list().value(0), 2);

  const absl::StatusOr<std::string> json =
      Encode({Floats({2, -std::numeric_limits<float>::infinity()}, TensorShape({2, 1}))});
  ASSERT_TRUE(json.ok()) << json.status();
  EXPECT_EQ(*json, R"({"results":[2.0,-Infinity]})");
}

TEST_F(ExamplesTest, JsonResponseHasPairsOfLabelAndScore) {
  ASSERT_TRUE(Decode("tfserving_json", "classify", R"({"examples": [{"x": 1}, {"x": 2}]})").ok());
  const absl::StatusOr<std::string> json = Encode({Strings({"a\"", "b", "\xff", "d"}, TensorShape({2, 2})),
                                                   Floats({0.5f, 1e-7f, 3, 1.0f / 3}, TensorShape({2, 2}))});
  ASSERT_TRUE(json.ok());
  EXPECT_EQ(*json, R"({"results":[[["a\"",0.5],["b",1e-07]],[[{"b64":"/w=="},3.0],["d",0.33333334]]]})");
}

TEST_F(ExamplesTest, JsonErrorsNameTheFeature) {
  const auto words = [this](const std::string& examples) {
    const absl::Status status = Decode("tfserving_json", "classify", "{\"examples\": " + examples + "}");
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    return std::string(status.message());
  };
  EXPECT_EQ(words("{}"), "examples: an object, expected a list of objects");
  EXPECT_EQ(words("[[]]"), "examples[0]: a list, expected an object of features");
  EXPECT_EQ(words("[]"), "input: no examples, expected at least one");
  EXPECT_EQ(words(R"([{}, {"n": [10, null]}])"), "examples[1]: feature 'n': null, expected text, b64 or a number");
  EXPECT_EQ(words(R"([{"n": [10, "a"]}])"), "examples[0]: feature 'n': text and numbers, expected values of one kind");
  EXPECT_EQ(words(R"([{"n": [[10]]}])"), "examples[0]: feature 'n': a list, expected text, b64 or a number");
  EXPECT_EQ(words(R"([{"n": 18446744073709551603}])"),
            "examples[0]: feature 'n': 18446744073709551603, expected an int64");
  EXPECT_EQ(words(R"([{"n": 1e300}])"), "examples[0]: feature 'n': 1e+300, expected a float");
  EXPECT_EQ(words(R"([{"n": {"b64": "?"}}])"), "examples[0]: feature 'n': an object, expected b64 of base64");
  EXPECT_EQ(Decode("tfserving_json", "classify", "{}"), absl::InvalidArgumentError("examples: missing"));
  EXPECT_EQ(Decode("tfserving_json", "classify", R"({"examples": [], "examples": []})"),
            absl::InvalidArgumentError("examples: given twice, expected once"));
  EXPECT_EQ(Decode("tfserving_json", "classify", R"({"context": 5, "examples": []})"),
            absl::InvalidArgumentError("context: 5, expected an object of features"));
}

}  // namespace
}  // namespace processor
