// SPDX-License-Identifier: Apache-2.0
// What only protocol "tfserving" has: ModelSpec, tensor_content, TensorFlow's rule for lists of values that are too
// short or too long.
#include <gtest/gtest.h>

#include "codec_fixture.h"

namespace processor {
namespace {

using tensorflow::DataType;
using tensorflow::Tensor;
using tensorflow::TensorProto;
using tensorflow::TensorShape;

class TfServingTest : public CodecFixture<TfServingMessages> {
 protected:
  TensorProto& SetUpInput(DataType dtype, const std::vector<int64_t>& dims) {
    SetInputs({{"x", dtype, {}, true}});
    request_message_.Clear();
    TensorProto& message = Input(&request_message_, "x");
    message.set_dtype(dtype);
    TfServingMessages::SetDims(dims, &message);
    return message;
  }

  void ExpectAsTensorFlow() {
    const TensorProto& message = request_message_.inputs().at("x");
    Tensor expected;
    ASSERT_TRUE(expected.FromProto(message)) << message.ShortDebugString();
    const absl::Status status = Decode(request_message_);
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_TRUE(oracle::Same(request_.feeds[0], expected)) << message.ShortDebugString();
  }

  Request request_message_;
};

TEST_F(TfServingTest, TensorContentWinsOverTypedValues) {
  TensorProto& message = SetUpInput(tensorflow::DT_INT32, {1});
  message.set_tensor_content(std::string("\x07\0\0\0", 4));
  message.add_int_val(9);
  ExpectAsTensorFlow();
  EXPECT_EQ(request_.feeds[0].flat<int32_t>()(0), 7);
}

TEST_F(TfServingTest, ErrorsNameTensorContentOfWrongSize) {
  TensorProto& message = SetUpInput(tensorflow::DT_FLOAT, {2, 2});
  message.set_tensor_content(std::string(12, '\0'));
  EXPECT_EQ(Decode(request_message_),
            absl::InvalidArgumentError(
                "input 'x': tensor_content of 12 bytes, expected 4 values of 4 bytes for shape [2,2]"));
  message.set_tensor_content(std::string(17, '\0'));
  EXPECT_EQ(Decode(request_message_),
            absl::InvalidArgumentError(
                "input 'x': tensor_content of 17 bytes, expected 4 values of 4 bytes for shape [2,2]"));
}

TEST_F(TfServingTest, TensorContentOfStringsIsRefused) {
  SetUpInput(tensorflow::DT_STRING, {1})
      .set_tensor_content(
          "\x01"
          "a");
  EXPECT_EQ(Decode(request_message_),
            absl::InvalidArgumentError("input 'x': tensor_content of DT_STRING, expected string_val"));
}

TEST_F(TfServingTest, BoolContentIsZeroOrOne) {
  SetUpInput(tensorflow::DT_BOOL, {3}).set_tensor_content(std::string("\x01\x00\x01", 3));
  ExpectAsTensorFlow();
  SetUpInput(tensorflow::DT_BOOL, {3}).set_tensor_content(std::string("\x02\x00\x80", 3));
  EXPECT_FALSE(Tensor().FromProto(request_message_.inputs().at("x")));
  EXPECT_EQ(Decode(request_message_),
            absl::InvalidArgumentError("input 'x': tensor_content of DT_BOOL with other bytes, expected 0 and 1"));
}

TEST_F(TfServingTest, ShortListsRepeatTheLastValue) {
  for (const DataType dtype : oracle::DtypesOf("tfserving")) {
    for (const int given : {0, 1, 2}) {
      SCOPED_TRACE(tensorflow::DataType_Name(dtype) + " " + std::to_string(given));
      SetUpInput(dtype, {});
      oracle::ToMessage(oracle::RandomTensor(dtype, TensorShape({given}), 9), &Input(&request_message_, "x"));
      TfServingMessages::SetDims({5, 7}, &Input(&request_message_, "x"));
      ExpectAsTensorFlow();
    }
  }
}

TEST_F(TfServingTest, SuperfluousValuesAreDropped) {
  for (const DataType dtype : oracle::DtypesOf("tfserving")) {
    SCOPED_TRACE(tensorflow::DataType_Name(dtype));
    SetUpInput(dtype, {});
    oracle::ToMessage(oracle::RandomTensor(dtype, TensorShape({9}), 9), &Input(&request_message_, "x"));
    TfServingMessages::SetDims({2}, &Input(&request_message_, "x"));
    ExpectAsTensorFlow();
    TfServingMessages::SetDims({0}, &Input(&request_message_, "x"));
    ExpectAsTensorFlow();
  }
}

TEST_F(TfServingTest, RepetitionIsBounded) {
  constexpr int64_t kFloats = (int64_t{64} << 20) / 4 + 1;
  SetUpInput(tensorflow::DT_FLOAT, {1, kFloats}).add_float_val(1.5f);
  ASSERT_TRUE(Decode(request_message_).ok());
  EXPECT_EQ(request_.feeds[0].flat<float>()(kFloats - 1), 1.5f);
  SetUpInput(tensorflow::DT_FLOAT, {1, kFloats + 1}).add_float_val(1.5f);
  EXPECT_EQ(
      Decode(request_message_),
      absl::InvalidArgumentError("input 'x': 1 values in float_val for shape [1,16777218], expected all values if "
                                 "a request repeats more than 64 MiB"));
  SetUpInput(tensorflow::DT_FLOAT, {int64_t{1} << 30, int64_t{1} << 30});
  EXPECT_EQ(Decode(request_message_).code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(TfServingTest, RepetitionOfLongStringsIsBoundedByTheirBytes) {
  SetUpInput(tensorflow::DT_STRING, {1000}).add_string_val(std::string(1 << 20, 'x'));
  EXPECT_EQ(Decode(request_message_),
            absl::InvalidArgumentError("input 'x': 1 values in string_val for shape [1000], expected all values if "
                                       "a request repeats more than 64 MiB"));
  SetUpInput(tensorflow::DT_STRING, {50}).add_string_val(std::string(1 << 20, 'x'));
  ExpectAsTensorFlow();
}

TEST_F(TfServingTest, RowsAreBounded) {
  SetUpInput(tensorflow::DT_FLOAT, {kDefaultMaxRows, 1}).add_float_val(1.5f);
  EXPECT_TRUE(Decode(request_message_).ok());
  SetUpInput(tensorflow::DT_FLOAT, {kDefaultMaxRows + 1, 0});
  EXPECT_EQ(Decode(request_message_),
            absl::InvalidArgumentError("input 'x': 1048577 rows, expected at most 1048576 (max_rows)"));
}

TEST_F(TfServingTest, ClaimsMemoryBeforeFillingIt) {
  ByteBudget& budget = ByteBudget::Requests();
  const int64_t before = budget.in_use(), limit = budget.limit();
  SetUpInput(tensorflow::DT_FLOAT, {1, 1 << 20}).add_float_val(1.5f);
  ASSERT_TRUE(Decode(request_message_).ok());
  EXPECT_GE(budget.in_use() - before, int64_t{4} << 20);
  request_ = DecodedRequest();
  EXPECT_EQ(budget.in_use(), before);

  budget.SetLimit(before + (int64_t{4} << 20));
  const absl::Status never = Decode(request_message_);
  EXPECT_TRUE(absl::IsInvalidArgument(never)) << never;
  EXPECT_EQ(never.message().rfind("input 'x': shape [1,1048576]: tensors: ", 0), 0u) << never;
  budget.SetLimit(before + (int64_t{6} << 20));
  ASSERT_TRUE(budget.Claim(ByteBudget::Use::kBody, int64_t{2} << 20));
  const absl::Status now = Decode(request_message_);
  EXPECT_TRUE(absl::IsResourceExhausted(now)) << now;
  budget.Release(ByteBudget::Use::kBody, int64_t{2} << 20);
  EXPECT_TRUE(Decode(request_message_).ok());
  budget.SetLimit(limit);
}

TEST_F(TfServingTest, UnknownRankIsIgnoredAsInTensorFlow) {
  TensorProto& message = SetUpInput(tensorflow::DT_FLOAT, {1});
  message.add_float_val(2);
  message.mutable_tensor_shape()->set_unknown_rank(true);
  ExpectAsTensorFlow();
}

TEST_F(TfServingTest, VersionNumberAndDimensionNamesAreIgnored) {
  TensorProto& message = SetUpInput(tensorflow::DT_FLOAT, {1});
  message.set_version_number(99);
  message.mutable_tensor_shape()->mutable_dim(0)->set_name("batch");
  message.add_float_val(3);
  ExpectAsTensorFlow();
}

TEST_F(TfServingTest, ReadsTheModelSpec) {
  SetUpInput(tensorflow::DT_FLOAT, {1});
  auto& spec = *request_message_.mutable_model_spec();
  spec.set_name("wdl");
  ASSERT_TRUE(Decode(request_message_).ok());
  EXPECT_EQ(request_.model_name, "wdl");
  EXPECT_EQ(request_.model_version, std::nullopt);
  spec.mutable_version()->set_value(42);
  ASSERT_TRUE(Decode(request_message_).ok());
  EXPECT_EQ(request_.model_version, 42);
  spec.mutable_version()->set_value(0);
  ASSERT_TRUE(Decode(request_message_).ok());
  EXPECT_EQ(request_.model_version, 0) << "asked for, though it is the default of the field";
  spec.set_version_label("canary");
  ASSERT_TRUE(Decode(request_message_).ok());
  EXPECT_EQ(request_.version_label, "canary");
  EXPECT_EQ(request_.model_version, std::nullopt);
}

TEST_F(TfServingTest, LaterOfVersionAndLabelWins) {
  SetUpInput(tensorflow::DT_FLOAT, {1});
  const std::string label = std::string("\x0a\x03\x22\x01", 4) + "a";
  const std::string version = std::string("\x0a\x04\x12\x02\x08\x07", 6);
  const std::string inputs = request_message_.SerializeAsString();
  ASSERT_TRUE(DecodeBytes(inputs + label + version).ok());
  EXPECT_EQ(request_.model_version, 7);
  EXPECT_EQ(request_.version_label, "");
  ASSERT_TRUE(DecodeBytes(version + inputs + label).ok());
  EXPECT_EQ(request_.model_version, std::nullopt);
  EXPECT_EQ(request_.version_label, "a");
}

TEST_F(TfServingTest, ErrorsNameMalformedModelSpec) {
  SetUpInput(tensorflow::DT_FLOAT, {1});
  EXPECT_EQ(DecodeBytes(std::string("\x0a\x02\x0a\x05", 4)),
            absl::InvalidArgumentError(
                "model_spec: malformed or truncated bytes, expected a ModelSpec of protocol 'tfserving'"));
}

TEST_F(TfServingTest, ResponseRepeatsTheModelSpec) {
  SetUpInput(tensorflow::DT_FLOAT, {1});
  request_message_.mutable_model_spec()->set_name("wdl");
  request_message_.add_output_filter("rank");
  ASSERT_TRUE(Decode(request_message_).ok());
  const Tensor rank = oracle::RandomTensor(tensorflow::DT_INT32, TensorShape({4}), 1);
  for (const std::optional<int64_t> version : {std::optional<int64_t>(), {0}, {7}, {int64_t{1} << 60}, {-1}}) {
    processor::Response encoded;
    ASSERT_TRUE(codec_->Encode(request_, {rank}, {version}, &encoded).ok());
    Response response;
    ASSERT_TRUE(response.ParseFromArray(encoded.body.data(), static_cast<int>(encoded.body.size())));
    EXPECT_EQ(response.model_spec().name(), "wdl");
    EXPECT_EQ(response.model_spec().signature_name(), "serving_default");
    EXPECT_EQ(response.model_spec().has_version(), version.has_value());
    EXPECT_EQ(response.model_spec().version().value(), version.value_or(0));
    EXPECT_EQ(response.ByteSizeLong(), encoded.body.size());
  }
}

}  // namespace
}  // namespace processor
