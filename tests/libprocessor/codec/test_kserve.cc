// SPDX-License-Identifier: Apache-2.0
// Protocol "kserve": what random requests (test_differential.cc) do not show: every dtype in every form, messages of
// errors, the answer's fields.
#include <gtest/gtest.h>

#include "codec_fixture.h"
#include "kserve_oracle.h"

namespace processor {
namespace {

using inference::ModelInferRequest;
using inference::ModelInferResponse;
using tensorflow::DataType;
using tensorflow::Tensor;
using tensorflow::TensorShape;

class KserveTest : public testing::Test {
 protected:
  absl::Status Decode() { return DecodeBytes(message_.SerializeAsString()); }
  absl::Status DecodeBytes(std::string_view bytes, std::string_view signature = "") {
    bytes_ = std::vector<char>(bytes.begin(), bytes.end());
    return codec_->Decode({bytes_.data(), bytes_.size()}, *signatures_, {signature}, &request_);
  }

  ModelInferResponse Encode(const std::vector<Tensor>& outputs, const ResponseContext& context = {}) {
    processor::Response encoded;
    const absl::Status status = codec_->Encode(request_, outputs, context, &encoded);
    EXPECT_TRUE(status.ok()) << status;
    ModelInferResponse response;
    EXPECT_TRUE(response.ParseFromArray(encoded.body.data(), static_cast<int>(encoded.body.size())));
    EXPECT_EQ(encoded.header_length, 0u);
    return response;
  }

  void SetInput(DataType dtype, const std::vector<int64_t>& dims = {}, bool any = true) {
    signatures_ = oracle::MakeSignatures({{"serving_default", {{"x", dtype, dims, any}}, {{"x", dtype, dims, any}}},
                                          {"other", {{"y", dtype, {}, true}}, {{"y", dtype, {}, true}}}});
    message_.Clear();
  }

  const Codec* codec_ = FindCodec("kserve");
  std::unique_ptr<SignatureSet> signatures_;
  std::vector<char> bytes_;
  ModelInferRequest message_;
  DecodedRequest request_;
};

TEST_F(KserveTest, EveryDtypeSurvivesARoundTripInTheFormOfTheRequest) {
  for (const DataType dtype : oracle::DtypesOf("kserve")) {
    for (const TensorShape& shape : {TensorShape(), TensorShape({3}), TensorShape({41, 5}), TensorShape({2, 0})}) {
      for (const bool raw : {true, false}) {
        if (!raw && !oracle::HasContents(dtype)) continue;
        SCOPED_TRACE(tensorflow::DataType_Name(dtype) + " " + shape.DebugString() + (raw ? " raw" : " typed"));
        const Tensor tensor = oracle::RandomTensor(dtype, shape, 5);
        SetInput(dtype);
        oracle::AddInput("x", tensor, raw, &message_);
        ASSERT_TRUE(Decode().ok()) << Decode();
        EXPECT_TRUE(oracle::Same(request_.feeds[0], tensor));
        const ModelInferResponse response = Encode({tensor});
        EXPECT_EQ(response.raw_output_contents_size(), raw ? 1 : 0);
        Tensor back;
        ASSERT_TRUE(oracle::OutputOf(response, 0, dtype, &back));
        EXPECT_TRUE(oracle::Same(back, tensor));
      }
    }
  }
}

TEST_F(KserveTest, ResponseContainsIdModelAndVersion) {
  SetInput(tensorflow::DT_FLOAT);
  message_.set_id("a 1");
  message_.set_model_name("ranking");
  oracle::AddInput("x", oracle::RandomTensor(tensorflow::DT_FLOAT, TensorShape({1}), 1), true, &message_);
  ASSERT_TRUE(Decode().ok());
  const ModelInferResponse response = Encode({request_.feeds[0]}, {7, "unused"});
  EXPECT_EQ(response.id(), "a 1");
  EXPECT_EQ(response.model_name(), "ranking");
  EXPECT_EQ(response.model_version(), "7");
  EXPECT_EQ(response.outputs(0).name(), "x");
  EXPECT_EQ(response.outputs(0).datatype(), "FP32");
  message_.clear_model_name();
  ASSERT_TRUE(Decode().ok());
  EXPECT_EQ(Encode({request_.feeds[0]}, {std::nullopt, "by url"}).model_name(), "by url");
  EXPECT_EQ(Encode({request_.feeds[0]}).model_version(), "");
}

TEST_F(KserveTest, VersionIsANumberOrALabel) {
  SetInput(tensorflow::DT_FLOAT);
  oracle::AddInput("x", oracle::RandomTensor(tensorflow::DT_FLOAT, TensorShape({1}), 1), true, &message_);
  message_.set_model_version("12");
  ASSERT_TRUE(Decode().ok());
  EXPECT_EQ(request_.model_version, 12);
  message_.set_model_version("stable");
  ASSERT_TRUE(Decode().ok());
  EXPECT_EQ(request_.model_version, std::nullopt);
  EXPECT_EQ(request_.version_label, "stable");
}

TEST_F(KserveTest, SignatureIsAParameterOrAnOption) {
  SetInput(tensorflow::DT_FLOAT);
  const Tensor tensor = oracle::RandomTensor(tensorflow::DT_FLOAT, TensorShape({1}), 1);
  oracle::AddInput("y", tensor, true, &message_);
  (*message_.mutable_parameters())["signature_name"].set_string_param("other");
  (*message_.mutable_parameters())["timeout"].set_int64_param(5);
  ASSERT_TRUE(Decode().ok()) << Decode();
  EXPECT_EQ(request_.signature->name(), "other");
  message_.clear_parameters();
  ASSERT_TRUE(DecodeBytes(message_.SerializeAsString(), "other").ok());
  (*message_.mutable_parameters())["signature_name"].set_bool_param(true);
  EXPECT_EQ(Decode(), absl::InvalidArgumentError("parameter 'signature_name': no string_param, expected one"));
}

TEST_F(KserveTest, ReturnsRequestedOutputsInOrder) {
  signatures_ = oracle::MakeSignatures(
      "serving_default", {{"x", tensorflow::DT_FLOAT, {}, true}},
      {{"prob", tensorflow::DT_FLOAT, {-1}}, {"rank", tensorflow::DT_INT32, {-1}}, {"half", tensorflow::DT_HALF, {}}});
  oracle::AddInput("x", oracle::RandomTensor(tensorflow::DT_FLOAT, TensorShape({1}), 1), false, &message_);
  for (const char* name : {"rank", "prob", "rank"}) message_.add_outputs()->set_name(name);
  ASSERT_TRUE(Decode().ok()) << Decode();
  const Tensor rank = oracle::RandomTensor(tensorflow::DT_INT32, TensorShape({2}), 2);
  const Tensor prob = oracle::RandomTensor(tensorflow::DT_FLOAT, TensorShape({2}), 3);
  const ModelInferResponse response = Encode({rank, prob});
  ASSERT_EQ(response.outputs_size(), 2);
  EXPECT_EQ(response.outputs(0).name(), "rank");
  EXPECT_EQ(response.outputs(1).name(), "prob");
  Tensor back;
  ASSERT_TRUE(oracle::OutputOf(response, 1, tensorflow::DT_FLOAT, &back));
  EXPECT_TRUE(oracle::Same(back, prob));
  message_.add_outputs()->set_name("none");
  EXPECT_EQ(Decode().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(KserveTest, OneFloat16OutputMakesAllOutputsRaw) {
  signatures_ = oracle::MakeSignatures("serving_default", {{"x", tensorflow::DT_FLOAT, {}, true}},
                                       {{"h", tensorflow::DT_HALF, {}, true}, {"s", tensorflow::DT_STRING, {}, true}});
  oracle::AddInput("x", oracle::RandomTensor(tensorflow::DT_FLOAT, TensorShape({1}), 1), false, &message_);
  ASSERT_TRUE(Decode().ok());
  const Tensor half = oracle::RandomTensor(tensorflow::DT_HALF, TensorShape({3}), 2);
  const Tensor text = oracle::RandomTensor(tensorflow::DT_STRING, TensorShape({3}), 3);
  const ModelInferResponse response = Encode({half, text});
  EXPECT_EQ(response.raw_output_contents_size(), 2);
  Tensor back;
  ASSERT_TRUE(oracle::OutputOf(response, 1, tensorflow::DT_STRING, &back));
  EXPECT_TRUE(oracle::Same(back, text));
}

TEST_F(KserveTest, ErrorsNameTheInput) {
  const Tensor pair = oracle::RandomTensor(tensorflow::DT_FLOAT, TensorShape({2}), 1);
  const auto invalid = [](const char* words) { return absl::InvalidArgumentError(words); };
  SetInput(tensorflow::DT_FLOAT);
  EXPECT_EQ(Decode(), invalid("input 'x': missing"));
  oracle::AddInput("x", pair, false, &message_);
  message_.mutable_inputs(0)->set_datatype("FP31");
  EXPECT_EQ(Decode(), invalid("input 'x': datatype 'FP31', expected FP32"));
  message_.mutable_inputs(0)->set_datatype("FP32");
  message_.mutable_inputs(0)->set_shape(0, 3);
  EXPECT_EQ(Decode(), invalid("input 'x': 2 values in fp32_contents, expected 3 for shape [3]"));
  message_.mutable_inputs(0)->set_shape(0, -3);
  EXPECT_EQ(Decode(), invalid("input 'x': shape [-3], expected no negative dimension"));
  message_.mutable_inputs(0)->set_shape(0, 2);
  message_.mutable_inputs(0)->mutable_contents()->add_fp64_contents(1);
  EXPECT_TRUE(Decode().ok()) << "values of another field mean nothing";
  message_.add_raw_input_contents("");
  EXPECT_EQ(Decode(), invalid("input 'x': contents beside raw_input_contents, expected one of them"));
  message_.mutable_inputs(0)->mutable_contents()->Clear();
  EXPECT_EQ(Decode(), invalid("input 'x': raw contents of 0 bytes, expected 2 values of 4 bytes for shape [2]"));
  message_.add_raw_input_contents("");
  EXPECT_EQ(Decode(), invalid("raw_input_contents: 2, expected one for each of 1 inputs"));

  message_.Clear();
  oracle::AddInput("x", pair, true, &message_);
  oracle::AddInput("serving_default_x:0", pair, true, &message_);
  EXPECT_EQ(Decode(), invalid("input 'x': given twice, expected once"));
  message_.Clear();
  oracle::AddInput("z", pair, true, &message_);
  EXPECT_EQ(Decode(), invalid("input 'z': not in signature 'serving_default' (has x)"));
  EXPECT_EQ(DecodeBytes("\x0a\x7f"), invalid("request: malformed or truncated bytes, expected a ModelInferRequest of "
                                             "protocol 'kserve'"));

  SetInput(tensorflow::DT_HALF);
  message_.add_inputs()->set_name("x");
  message_.mutable_inputs(0)->set_datatype("FP16");
  EXPECT_EQ(Decode(), invalid("input 'x': contents of FP16, expected raw_input_contents"));

  SetInput(tensorflow::DT_BOOL, {-1}, false);
  oracle::AddInput("x", oracle::RandomTensor(tensorflow::DT_BOOL, TensorShape({2}), 1), true, &message_);
  message_.set_raw_input_contents(0, "\1\2");
  EXPECT_EQ(Decode(), invalid("input 'x': raw contents of BOOL with other bytes, expected 0 and 1"));

  SetInput(tensorflow::DT_COMPLEX64);
  message_.add_inputs()->set_name("x");
  EXPECT_EQ(Decode(), absl::UnimplementedError("input 'x': dtype DT_COMPLEX64, expected one that protocol 'kserve' "
                                               "has"));
}

TEST_F(KserveTest, ChecksNumberAndSizeOfRawStrings) {
  SetInput(tensorflow::DT_STRING);
  auto* const input = message_.add_inputs();
  input->set_name("x");
  input->set_datatype("BYTES");
  input->add_shape(2);
  const auto with = [&](std::string_view raw) {
    message_.clear_raw_input_contents();
    message_.add_raw_input_contents(std::string(raw));
    return Decode();
  };
  using namespace std::string_view_literals;
  EXPECT_TRUE(with("\1\0\0\0a\0\0\0\0"sv).ok());
  EXPECT_EQ(with("\1\0\0\0a"sv),
            absl::InvalidArgumentError("input 'x': 1 values in raw contents, expected 2 for shape [2]"));
  for (const std::string_view cut : {"\1\0\0\0a\1\0\0\0"sv, "\1\0\0\0a\0\0"sv, "\xff\xff\xff\xff"sv}) {
    EXPECT_EQ(with(cut).code(), absl::StatusCode::kInvalidArgument);
  }
  // More rows than a request may have, with values or without.
  input->set_shape(0, int64_t{1} << 60);
  EXPECT_EQ(with("\1\0\0\0a\0\0\0\0"sv).code(), absl::StatusCode::kInvalidArgument);
  input->add_shape(0);
  EXPECT_EQ(with(""sv).code(), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace processor
