// SPDX-License-Identifier: Apache-2.0
// What holds for every protocol: round trips of all dtypes against generated protobuf code, names, errors.
#include "src/codec/predict_codec.h"

#include <gtest/gtest.h>

#include "codec_fixture.h"

namespace processor {
namespace {

using tensorflow::DataType;
using tensorflow::Tensor;
using tensorflow::TensorShape;

template <typename Messages>
class PredictCodecTest : public CodecFixture<Messages> {
 protected:
  using Request = typename Messages::Request;
  using Response = typename Messages::Response;

  void SetUp() override {
    this->SetInputs({{"dense", tensorflow::DT_FLOAT, {-1, 3}}, {"id", tensorflow::DT_INT64, {-1}}});
    oracle::ToMessage(dense_, &this->Input(&valid_, "dense"));
    oracle::ToMessage(id_, &this->Input(&valid_, "id"));
  }

  void ExpectDecoded() {
    ASSERT_EQ(this->request_.feeds.size(), 2);
    EXPECT_TRUE(oracle::Same(this->request_.feeds[0], dense_));
    EXPECT_TRUE(oracle::Same(this->request_.feeds[1], id_));
  }

  const Tensor dense_ = oracle::RandomTensor(tensorflow::DT_FLOAT, TensorShape({2, 3}), 1);
  const Tensor id_ = oracle::RandomTensor(tensorflow::DT_INT64, TensorShape({2}), 2);
  Request valid_;
};

using AllMessages = testing::Types<EasMessages, TfServingMessages>;
TYPED_TEST_SUITE(PredictCodecTest, AllMessages);

std::vector<TensorShape> Shapes() {
  return {TensorShape(),
          TensorShape({0}),
          TensorShape({1}),
          TensorShape({7}),
          TensorShape({2, 3}),
          TensorShape({4, 0, 2}),
          TensorShape({1, 1, 1, 1, 5}),
          TensorShape({1031})};
}

TYPED_TEST(PredictCodecTest, DecodesEveryDtypeAsGeneratedCodeDoes) {
  for (const DataType dtype : oracle::DtypesOf(TypeParam::kName)) {
    this->SetInputs({{"x", dtype, {}, true}});
    for (const TensorShape& shape : Shapes()) {
      SCOPED_TRACE(tensorflow::DataType_Name(dtype) + " " + shape.DebugString());
      const Tensor expected = oracle::RandomTensor(dtype, shape, shape.num_elements() + 1);
      typename TypeParam::Request request;
      oracle::ToMessage(expected, &this->Input(&request, "x"));
      const absl::Status status = this->Decode(request);
      ASSERT_TRUE(status.ok()) << status;
      EXPECT_TRUE(oracle::Same(this->request_.feeds[0], expected));
    }
  }
}

TYPED_TEST(PredictCodecTest, EncodesEveryDtypeAsGeneratedCodeDoes) {
  for (const DataType dtype : oracle::DtypesOf(TypeParam::kName)) {
    const auto signatures = oracle::MakeSignatures("serving_default", {}, {{"y", dtype, {}, true}});
    DecodedRequest request;
    ASSERT_TRUE(this->codec_->Decode("", *signatures, {}, &request).ok());
    for (const TensorShape& shape : Shapes()) {
      SCOPED_TRACE(tensorflow::DataType_Name(dtype) + " " + shape.DebugString());
      const Tensor tensor = oracle::RandomTensor(dtype, shape, shape.num_elements() + 2);
      processor::Response encoded;
      const absl::Status status = this->codec_->Encode(request, {tensor}, {}, &encoded);
      ASSERT_TRUE(status.ok()) << status;
      typename TypeParam::Response response;
      ASSERT_TRUE(response.ParseFromArray(encoded.body.data(), static_cast<int>(encoded.body.size())));
      ASSERT_EQ(response.outputs().count("y"), 1);
      typename TypeParam::TensorMessage expected;
      oracle::ToMessage(tensor, &expected);
      EXPECT_EQ(response.outputs().at("y").SerializeAsString(), expected.SerializeAsString());
      Tensor back;
      ASSERT_TRUE(oracle::ToTensor(response.outputs().at("y"), dtype, &back));
      EXPECT_TRUE(oracle::Same(back, tensor));
      EXPECT_EQ(response.ByteSizeLong(), encoded.body.size()) << "no byte more than protobuf needs";
    }
  }
}

TYPED_TEST(PredictCodecTest, ReadsAFullRequest) {
  const absl::Status status = this->Decode(this->valid_);
  ASSERT_TRUE(status.ok()) << status;
  this->ExpectDecoded();
  EXPECT_EQ(this->request_.signature->name(), "serving_default");
  EXPECT_EQ(this->request_.fetches, (std::vector<int>{0, 1}));
}

TYPED_TEST(PredictCodecTest, TakesInputsByTensorName) {
  typename TypeParam::Request request;
  this->Input(&request, "serving_default_dense:0") = this->valid_.inputs().at("dense");
  this->Input(&request, "serving_default_id") = this->valid_.inputs().at("id");
  const absl::Status status = this->Decode(request);
  ASSERT_TRUE(status.ok()) << status;
  this->ExpectDecoded();
}

TYPED_TEST(PredictCodecTest, OneInputUnderTwoNamesIsRefused) {
  this->Input(&this->valid_, "serving_default_id:0") = this->valid_.inputs().at("id");
  const absl::Status status = this->Decode(this->valid_);
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string message(status.message());
  EXPECT_TRUE(message == "input 'id': given as 'id' and as 'serving_default_id:0', expected one of them" ||
              message == "input 'id': given as 'serving_default_id:0' and as 'id', expected one of them")
      << message;
}

TYPED_TEST(PredictCodecTest, OfEqualKeysTheLastCounts) {
  typename TypeParam::Request first, second;
  this->Input(&first, "dense");  // of no dtype: would be refused
  this->Input(&second, "dense") = this->valid_.inputs().at("dense");
  this->Input(&second, "id") = this->valid_.inputs().at("id");
  const absl::Status status = this->DecodeBytes(first.SerializeAsString() + second.SerializeAsString());
  ASSERT_TRUE(status.ok()) << status;
  this->ExpectDecoded();
}

TYPED_TEST(PredictCodecTest, SignatureMayComeAfterTheInputs) {
  typename TypeParam::Request head;
  TypeParam::SetSignature("serving_default", &head);
  this->signatures_->set_default(nullptr);
  const absl::Status status = this->DecodeBytes(this->valid_.SerializeAsString() + head.SerializeAsString());
  ASSERT_TRUE(status.ok()) << status;
  this->ExpectDecoded();
}

TYPED_TEST(PredictCodecTest, OverrideReplacesTheRequestsSignature) {
  TypeParam::SetSignature("absent", &this->valid_);
  EXPECT_TRUE(this->DecodeBytes(this->valid_.SerializeAsString(), "serving_default").ok());
  EXPECT_EQ(this->Decode(this->valid_),
            absl::Status(TypeParam::kUnknownSignature, "signature 'absent': not in the model (has serving_default)"));
}

TYPED_TEST(PredictCodecTest, NoSignatureAndNoDefaultIsSaid) {
  this->signatures_->set_default(nullptr);
  EXPECT_EQ(this->Decode(this->valid_),
            absl::Status(TypeParam::kUnknownSignature,
                         "signature: none named and the model has no default (has serving_default)"));
}

TYPED_TEST(PredictCodecTest, FilterSelectsOutputsAndTheirKeys) {
  this->valid_.add_output_filter("serving_default_rank:0");
  ASSERT_TRUE(this->Decode(this->valid_).ok());
  EXPECT_EQ(this->request_.fetches, (std::vector<int>{1}));
  processor::Response encoded;
  const Tensor rank = oracle::RandomTensor(tensorflow::DT_INT32, TensorShape({2}), 3);
  ASSERT_TRUE(this->codec_->Encode(this->request_, {rank}, {}, &encoded).ok());
  typename TypeParam::Response response;
  ASSERT_TRUE(response.ParseFromArray(encoded.body.data(), static_cast<int>(encoded.body.size())));
  EXPECT_EQ(response.outputs_size(), 1);
  EXPECT_EQ(response.outputs().count("serving_default_rank:0"), 1);
}

TYPED_TEST(PredictCodecTest, UnknownOutputIsNamed) {
  this->valid_.add_output_filter("prob\xff");
  EXPECT_EQ(this->Decode(this->valid_),
            absl::Status(TypeParam::kUnknownOutput,
                         "output 'prob\\xff': not in signature 'serving_default' (has prob, rank)"));
}

TYPED_TEST(PredictCodecTest, AnOutputNamedTwiceIsRefusedOrFetchedOnce) {
  this->valid_.add_output_filter("rank");
  this->valid_.add_output_filter("rank");
  const absl::Status status = this->Decode(this->valid_);
  if (TypeParam::kOutputsOnce) {
    EXPECT_EQ(status, absl::InvalidArgumentError("output 'rank': named twice, expected once"));
  } else {
    ASSERT_TRUE(status.ok()) << status;
    EXPECT_EQ(this->request_.fetches, (std::vector<int>{1}));
  }
}

TYPED_TEST(PredictCodecTest, MissingInputIsNamed) {
  this->valid_.mutable_inputs()->erase("id");
  EXPECT_EQ(this->Decode(this->valid_), absl::InvalidArgumentError("input 'id': missing"));
  EXPECT_EQ(this->DecodeBytes(""), absl::InvalidArgumentError("input 'dense': missing"));
}

TYPED_TEST(PredictCodecTest, UnknownInputIsNamed) {
  this->Input(&this->valid_, "x\ny");
  EXPECT_EQ(this->Decode(this->valid_),
            absl::InvalidArgumentError("input 'x\\ny': not in signature 'serving_default' (has dense, id)"));
}

TYPED_TEST(PredictCodecTest, KeyOfInvalidUtf8IsAnUnknownInput) {
  const std::string entry = std::string("\x0a\x02\xc3\x28", 4);
  EXPECT_EQ(this->DecodeBytes(std::string("\x12\x04", 2) + entry),
            absl::InvalidArgumentError("input '\\xc3(': not in signature 'serving_default' (has dense, id)"));
}

TYPED_TEST(PredictCodecTest, LongListsOfNamesAreCut) {
  std::vector<oracle::Spec> inputs;
  for (int i = 10; i < 49; ++i) inputs.push_back({"C" + std::to_string(i), tensorflow::DT_INT64, {-1}});
  this->SetInputs(inputs);
  EXPECT_EQ(this->Decode(this->valid_).message().substr(0, 7), "input '");
  typename TypeParam::Request request;
  this->Input(&request, "x");
  EXPECT_EQ(this->Decode(request),
            absl::InvalidArgumentError("input 'x': not in signature 'serving_default' (has C10, C11, C12, C13, C14, "
                                       "C15, C16, C17, C18, C19, ... 29 more)"));
}

TYPED_TEST(PredictCodecTest, WrongDtypeIsNamed) {
  TypeParam::SetDtype(tensorflow::DT_DOUBLE, &this->Input(&this->valid_, "dense"));
  EXPECT_EQ(this->Decode(this->valid_),
            absl::InvalidArgumentError("input 'dense': dtype DT_DOUBLE, expected DT_FLOAT"));
  TypeParam::SetDtype(-1, &this->Input(&this->valid_, "dense"));
  EXPECT_EQ(this->Decode(this->valid_),
            absl::InvalidArgumentError("input 'dense': dtype number -1, expected DT_FLOAT"));
  this->Input(&this->valid_, "dense").Clear();
  EXPECT_EQ(this->Decode(this->valid_),
            absl::InvalidArgumentError("input 'dense': dtype DT_INVALID, expected DT_FLOAT"));
}

TYPED_TEST(PredictCodecTest, DtypeWithoutValuesInTheProtocolIsRefused) {
  this->SetInputs({{"x", tensorflow::DT_RESOURCE, {}}});
  typename TypeParam::Request request;
  TypeParam::SetDtype(tensorflow::DT_RESOURCE, &this->Input(&request, "x"));
  EXPECT_EQ(this->Decode(request),
            absl::UnimplementedError("input 'x': dtype DT_RESOURCE, expected one that protocol '" +
                                     std::string(TypeParam::kName) + "' has"));
}

TYPED_TEST(PredictCodecTest, WrongShapeIsNamed) {
  TypeParam::SetDims({3, 2}, &this->Input(&this->valid_, "dense"));
  EXPECT_EQ(this->Decode(this->valid_), absl::InvalidArgumentError("input 'dense': shape [3,2], expected [?,3]"));
  TypeParam::SetDims({}, &this->Input(&this->valid_, "dense"));
  EXPECT_EQ(this->Decode(this->valid_), absl::InvalidArgumentError("input 'dense': shape [], expected [?,3]"));
}

TYPED_TEST(PredictCodecTest, NegativeDimensionIsNamed) {
  TypeParam::SetDims({-1, 3}, &this->Input(&this->valid_, "dense"));
  EXPECT_EQ(this->Decode(this->valid_),
            absl::InvalidArgumentError("input 'dense': shape [-1,3], expected no negative dimension"));
  TypeParam::SetDims({std::numeric_limits<int64_t>::min(), 3}, &this->Input(&this->valid_, "dense"));
  EXPECT_EQ(this->Decode(this->valid_), absl::InvalidArgumentError("input 'dense': shape [-9223372036854775808,3], "
                                                                   "expected no negative dimension"));
}

TYPED_TEST(PredictCodecTest, OverflowingShapeIsNamed) {
  TypeParam::SetDims({int64_t{1} << 62, 3}, &this->Input(&this->valid_, "dense"));
  EXPECT_EQ(this->Decode(this->valid_), absl::InvalidArgumentError("input 'dense': shape [4611686018427387904,3], "
                                                                   "expected fewer than 2^63 elements"));
}

TYPED_TEST(PredictCodecTest, TooManyDimensionsAreCounted) {
  this->SetInputs({{"x", tensorflow::DT_FLOAT, {}, true}});
  typename TypeParam::Request request;
  oracle::ToMessage(oracle::RandomTensor(tensorflow::DT_FLOAT, TensorShape({1}), 1), &this->Input(&request, "x"));
  TypeParam::SetDims(std::vector<int64_t>(254, 1), &this->Input(&request, "x"));
  EXPECT_TRUE(this->Decode(request).ok());
  EXPECT_EQ(this->request_.feeds[0].dims(), 254);
  TypeParam::SetDims(std::vector<int64_t>(255, 1), &this->Input(&request, "x"));
  EXPECT_EQ(this->Decode(request),
            absl::InvalidArgumentError("input 'x': shape of 255 dimensions, expected at most 254"));
}

TYPED_TEST(PredictCodecTest, HugeShapeOfFewBytesCostsNoMemory) {
  this->SetInputs({{"x", tensorflow::DT_STRING, {}, true}});
  typename TypeParam::Request request;
  oracle::ToMessage(oracle::RandomTensor(tensorflow::DT_STRING, TensorShape({1}), 1), &this->Input(&request, "x"));
  TypeParam::SetDims({int64_t{1} << 40}, &this->Input(&request, "x"));
  EXPECT_EQ(this->Decode(request).code(), absl::StatusCode::kInvalidArgument);
}

TYPED_TEST(PredictCodecTest, EveryTruncationIsAnswered) {
  const std::string bytes = this->valid_.SerializeAsString();
  for (size_t cut = 0; cut < bytes.size(); ++cut) {
    const absl::Status status = this->DecodeBytes(std::string_view(bytes).substr(0, cut));
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << cut << ": " << status;
  }
  EXPECT_EQ(
      this->DecodeBytes(std::string_view(bytes).substr(0, bytes.size() - 1)),
      absl::InvalidArgumentError("request: malformed or truncated bytes, expected a PredictRequest of protocol '" +
                                 std::string(TypeParam::kName) + "'"));
}

TYPED_TEST(PredictCodecTest, BytesMalformedInsideAnInputNameIt) {
  std::string entry = std::string("\x0a\x02id\x12\x03", 6) + std::string("\x08\x09\x13", 3);  // a group without end
  EXPECT_EQ(this->DecodeBytes(std::string("\x12\x09", 2) + entry),
            absl::InvalidArgumentError("input 'id': malformed or truncated bytes, expected a tensor"));
}

TYPED_TEST(PredictCodecTest, UnknownFieldsAreSkipped) {
  const std::string unknown =
      std::string("\xa0\x06\x01", 3) + "\xa2\x06\x02hi" + std::string("\xa3\x06\x08\x01\xa4\x06", 6);
  const absl::Status status = this->DecodeBytes(unknown + this->valid_.SerializeAsString() + unknown);
  ASSERT_TRUE(status.ok()) << status;
  this->ExpectDecoded();
}

TYPED_TEST(PredictCodecTest, ADecodedRequestCanBeUsedAgain) {
  this->valid_.add_output_filter("rank");
  ASSERT_TRUE(this->Decode(this->valid_).ok());
  this->valid_.clear_output_filter();
  ASSERT_TRUE(this->Decode(this->valid_).ok());
  EXPECT_EQ(this->request_.fetches, (std::vector<int>{0, 1}));
  EXPECT_TRUE(this->request_.fetch_keys.empty());
  this->ExpectDecoded();
}

TYPED_TEST(PredictCodecTest, OutputDtypeOutsideTheProtocolIsNamed) {
  ASSERT_TRUE(this->Decode(this->valid_).ok());
  processor::Response encoded;
  const Tensor prob = oracle::RandomTensor(tensorflow::DT_FLOAT, TensorShape({2, 1}), 3);
  const absl::Status status =
      this->codec_->Encode(this->request_, {prob, Tensor(tensorflow::DT_FLOAT8_E5M2, TensorShape({2}))}, {}, &encoded);
  EXPECT_EQ(status, absl::UnimplementedError("output 'rank': dtype DT_FLOAT8_E5M2, expected one that protocol '" +
                                             std::string(TypeParam::kName) + "' has"));
}

TYPED_TEST(PredictCodecTest, ResponseBeyondTwoGibibytesIsRefused) {
  ASSERT_TRUE(this->Decode(this->valid_).ok());
  // Never touched, so it takes no memory.
  const Tensor prob(tensorflow::DT_FLOAT, TensorShape({int64_t{1} << 29, 1}));
  const Tensor rank = oracle::RandomTensor(tensorflow::DT_INT32, TensorShape({2}), 3);
  processor::Response encoded;
  const absl::Status status = this->codec_->Encode(this->request_, {prob, rank}, {}, &encoded);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_NE(status.message().find("expected at most 2147483647"), std::string::npos) << status;
}

}  // namespace
}  // namespace processor
