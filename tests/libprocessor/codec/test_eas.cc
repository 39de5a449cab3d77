// SPDX-License-Identifier: Apache-2.0
// What only protocol "eas" has: values must be exactly as many as the shape says; halves travel as floats.
#include <gtest/gtest.h>

#include "codec_fixture.h"

namespace processor {
namespace {

using tensorflow::eas::ArrayProto;

class EasTest : public CodecFixture<EasMessages> {
 protected:
  ArrayProto& SetUpInput(tensorflow::DataType dtype, const std::vector<int64_t>& dims) {
    SetInputs({{"x", dtype, {}, true}});
    request_message_.Clear();
    ArrayProto& message = Input(&request_message_, "x");
    EasMessages::SetDtype(dtype, &message);
    EasMessages::SetDims(dims, &message);
    return message;
  }

  Request request_message_;
};

TEST_F(EasTest, RefusesValueCountThatContradictsShape) {
  ArrayProto& floats = SetUpInput(tensorflow::DT_FLOAT, {2, 2});
  for (int i = 0; i < 3; ++i) floats.add_float_val(1);
  EXPECT_EQ(Decode(request_message_),
            absl::InvalidArgumentError("input 'x': 3 values in float_val, expected 4 for shape [2,2]"));
  floats.add_float_val(1);
  EXPECT_TRUE(Decode(request_message_).ok());
  floats.add_float_val(1);
  EXPECT_EQ(Decode(request_message_),
            absl::InvalidArgumentError("input 'x': 5 values in float_val, expected 4 for shape [2,2]"));
}

TEST_F(EasTest, IgnoresValuesInTheFieldOfAnotherDtype) {
  ArrayProto& floats = SetUpInput(tensorflow::DT_FLOAT, {2});
  floats.add_double_val(1);
  floats.add_double_val(2);
  EXPECT_EQ(Decode(request_message_),
            absl::InvalidArgumentError("input 'x': 0 values in float_val, expected 2 for shape [2]"));
  floats.add_float_val(1);
  floats.add_float_val(2);
  EXPECT_TRUE(Decode(request_message_).ok()) << "superfluous values of another field are ignored";
}

TEST_F(EasTest, ReadsComplexNumbersAsPairs) {
  ArrayProto& numbers = SetUpInput(tensorflow::DT_COMPLEX64, {1});
  for (int i = 0; i < 3; ++i) numbers.add_float_val(1);
  EXPECT_EQ(Decode(request_message_),
            absl::InvalidArgumentError("input 'x': 3 values in float_val, expected 1 pairs for shape [1]"));
}

TEST_F(EasTest, RefusesStringCountThatContradictsShape) {
  ArrayProto& strings = SetUpInput(tensorflow::DT_STRING, {3});
  strings.add_string_val("a");
  strings.add_string_val("b");
  EXPECT_EQ(Decode(request_message_),
            absl::InvalidArgumentError("input 'x': 2 values in string_val, expected 3 for shape [3]"));
}

TEST_F(EasTest, AbsentShapeIsAScalar) {
  SetInputs({{"x", tensorflow::DT_FLOAT, {}, true}});
  ArrayProto& message = Input(&request_message_, "x");
  EasMessages::SetDtype(tensorflow::DT_FLOAT, &message);
  message.add_float_val(2.5f);
  ASSERT_TRUE(Decode(request_message_).ok());
  EXPECT_EQ(request_.feeds[0].dims(), 0);
  EXPECT_EQ(request_.feeds[0].scalar<float>()(), 2.5f);
}

TEST_F(EasTest, RoundsFloatsToHalves) {
  ArrayProto& halves = SetUpInput(tensorflow::DT_HALF, {2});
  halves.add_float_val(0.1f);
  halves.add_float_val(-65504.f);
  ASSERT_TRUE(Decode(request_message_).ok());
  EXPECT_EQ(request_.feeds[0].flat<Eigen::half>()(0), Eigen::half(0.1f));
  EXPECT_EQ(request_.feeds[0].flat<Eigen::half>()(1), Eigen::half(-65504.f));
}

TEST_F(EasTest, SmallIntegersKeepTheLowBits) {
  ArrayProto& bytes = SetUpInput(tensorflow::DT_UINT8, {2});
  bytes.add_int_val(255);
  bytes.add_int_val(-1);
  ASSERT_TRUE(Decode(request_message_).ok());
  EXPECT_EQ(request_.feeds[0].flat<uint8_t>()(0), 255);
  EXPECT_EQ(request_.feeds[0].flat<uint8_t>()(1), 255);
}

TEST_F(EasTest, ErrorsNameInputWithTruncatedPackedValues) {
  SetInputs({{"x", tensorflow::DT_FLOAT, {}, true}});
  const std::string entry = std::string(
      "\x0a\x01x\x12\x07\x08\x01\x1a\x03"
      "abc",
      12);
  EXPECT_EQ(DecodeBytes(std::string("\x12\x0c", 2) + entry),
            absl::InvalidArgumentError("input 'x': malformed or truncated bytes, expected a tensor"));
}

TEST_F(EasTest, RefusesUnsupportedDtypes) {
  SetUpInput(tensorflow::DT_UINT32, {1});
  EXPECT_EQ(Decode(request_message_),
            absl::UnimplementedError("input 'x': dtype DT_UINT32, expected one that protocol 'eas' has"));
}

}  // namespace
}  // namespace processor
