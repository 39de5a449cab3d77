// SPDX-License-Identifier: Apache-2.0
// What the codecs share: look-up by name, checks against a signature, words of the messages.
#include "src/codec/codec.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "oracle.h"
#include "src/codec/message_text.h"

namespace processor {
namespace {

using tensorflow::TensorShape;

class CodecTest : public testing::Test {
 protected:
  CodecTest()
      : signatures_(oracle::MakeSignatures(
            "serving_default", {{"dense", tensorflow::DT_FLOAT, {-1, 13}}, {"id", tensorflow::DT_INT64, {-1}}},
            {{"prob", tensorflow::DT_FLOAT, {-1, 1}}, {"rank", tensorflow::DT_INT32, {-1}}})),
        signature_(*signatures_->default_signature()) {
    request_.signature = &signature_;
  }

  std::unique_ptr<SignatureSet> signatures_;
  const Signature& signature_;
  DecodedRequest request_;
};

TEST_F(CodecTest, EveryProtocolHasACodec) {
  EXPECT_EQ(Protocols(), (std::vector<std::string>{"tfserving", "tfserving_json", "kserve", "kserve_json", "eas"}));
  for (const std::string& protocol : Protocols()) EXPECT_NE(FindCodec(protocol), nullptr) << protocol;
  EXPECT_NE(FindCodec("eas"), FindCodec("tfserving"));
  EXPECT_EQ(FindCodec("flatbuffer"), nullptr);
  EXPECT_EQ(FindCodec(""), nullptr);
}

TEST_F(CodecTest, MethodsAreFoundByNameAndTheFirstByNone) {
  EXPECT_EQ(FindCodec("tfserving"), FindCodec("tfserving", "Predict"));
  EXPECT_NE(FindCodec("tfserving", "Classify"), FindCodec("tfserving", "Regress"));
  EXPECT_EQ(FindCodec("kserve", "infer"), nullptr);
  EXPECT_EQ(FindMethod("kserve", "Predict"), nullptr);
  ASSERT_NE(FindMethod("kserve", "ServerLive"), nullptr);
  EXPECT_EQ(FindMethod("kserve", "ServerLive")->codec, nullptr) << "it runs no model";
  EXPECT_EQ(FindMethod("eas", "")->name, "predict");
  std::set<std::pair<std::string_view, std::string_view>> seen;
  for (const Method& method : Methods()) EXPECT_TRUE(seen.emplace(method.protocol, method.name).second);
  EXPECT_TRUE(IsJson("tfserving_json"));
  EXPECT_FALSE(IsJson("tfserving"));
}

TEST_F(CodecTest, DtypeMustBeTheSignatures) {
  const TensorSpec& spec = signature_.inputs()[0];
  EXPECT_TRUE(CheckDtype(spec, tensorflow::DT_FLOAT).ok());
  EXPECT_EQ(CheckDtype(spec, tensorflow::DT_DOUBLE),
            absl::InvalidArgumentError("input 'dense': dtype DT_DOUBLE, expected DT_FLOAT"));
  EXPECT_EQ(CheckDtype(spec, static_cast<tensorflow::DataType>(-7)),
            absl::InvalidArgumentError("input 'dense': dtype number -7, expected DT_FLOAT"));
}

TEST_F(CodecTest, ShapeMustFitTheSignatures) {
  const TensorSpec& spec = signature_.inputs()[0];
  EXPECT_TRUE(CheckShape(spec, TensorShape({0, 13})).ok());
  EXPECT_TRUE(CheckShape(spec, TensorShape({4, 13})).ok());
  EXPECT_EQ(CheckShape(spec, TensorShape({4, 12})),
            absl::InvalidArgumentError("input 'dense': shape [4,12], expected [?,13]"));
  EXPECT_EQ(CheckShape(spec, TensorShape({13})),
            absl::InvalidArgumentError("input 'dense': shape [13], expected [?,13]"));
  EXPECT_EQ(CheckShape(spec, TensorShape()), absl::InvalidArgumentError("input 'dense': shape [], expected [?,13]"));
}

TEST_F(CodecTest, AbsentFilterMeansAllOutputs) {
  ASSERT_TRUE(FinishRequest({true, true}, {}, &request_).ok());
  EXPECT_EQ(request_.fetches, (std::vector<int>{0, 1}));
  EXPECT_TRUE(request_.fetch_keys.empty());
}

TEST_F(CodecTest, FilterGivesOrderAndKeysWithoutRepetition) {
  ASSERT_TRUE(FinishRequest({true, true}, {"rank", "serving_default_prob:0", "rank", "prob"}, &request_).ok());
  EXPECT_EQ(request_.fetches, (std::vector<int>{1, 0}));
  EXPECT_EQ(request_.fetch_keys, (std::vector<std::string_view>{"rank", "serving_default_prob:0"}));
}

TEST_F(CodecTest, UnknownOutputIsNamed) {
  EXPECT_EQ(FinishRequest({true, true}, {"x"}, &request_),
            absl::NotFoundError("output 'x': not in signature 'serving_default' (has prob, rank)"));
}

TEST_F(CodecTest, MissingInputIsNamed) {
  EXPECT_EQ(FinishRequest({true, false}, {}, &request_), absl::InvalidArgumentError("input 'id': missing"));
}

TEST(PrintableTest, KeepsTextAndEscapesTheRest) {
  EXPECT_EQ(Printable("C3"), "C3");
  EXPECT_EQ(Printable(std::string_view("a\0\n\xff", 4)), "a\\x00\\n\\xff");
  EXPECT_EQ(Printable(std::string(1000, 'a')), std::string(128, 'a') + "...");
}

TEST(DtypeNameTest, NumbersWithoutANameAreShown) {
  EXPECT_EQ(DtypeName(tensorflow::DT_STRING), "DT_STRING");
  EXPECT_EQ(DtypeName(static_cast<tensorflow::DataType>(99)), "number 99");
}

}  // namespace
}  // namespace processor
