// SPDX-License-Identifier: Apache-2.0
// What the codecs share: look-up by name, outputs that are asked for, words of the messages.
#include "src/codec/codec.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>

#include "oracle.h"
#include "src/codec/message_text.h"
#include "src/codec/protocols.h"

namespace processor {
namespace {

TEST(Codec, EveryProtocolHasACodec) {
  EXPECT_EQ(Protocols(), (std::vector<std::string>{"tfserving", "tfserving_json", "kserve", "kserve_json", "eas"}));
  for (const std::string& protocol : Protocols()) EXPECT_NE(FindCodec(protocol), nullptr) << protocol;
  EXPECT_NE(FindCodec("eas"), FindCodec("tfserving"));
  EXPECT_EQ(FindCodec("flatbuffer"), nullptr);
  EXPECT_EQ(FindCodec(""), nullptr);
}

TEST(Codec, FindsMethodsByNameAndDefaultMethodWithoutName) {
  EXPECT_EQ(FindCodec("tfserving"), FindCodec("tfserving", "Predict"));
  EXPECT_NE(FindCodec("tfserving", "Classify"), FindCodec("tfserving", "Regress"));
  EXPECT_EQ(FindCodec("kserve", "infer"), nullptr);
  EXPECT_EQ(FindMethod("kserve", "Predict"), nullptr);
  ASSERT_NE(FindMethod("kserve", "ServerLive"), nullptr);
  EXPECT_EQ(FindMethod("kserve", "ServerLive")->codec, nullptr) << "it runs no model";
  EXPECT_EQ(FindMethod("eas", "")->name, "predict");
  std::set<std::pair<std::string_view, std::string_view>> seen;
  for (const Method& method : Methods()) EXPECT_TRUE(seen.emplace(method.protocol, method.name).second);
  EXPECT_EQ(UnknownMethod("kserve_json", "sing").message().substr(0, 70),
            "protocol 'kserve_json': method 'sing' unknown, expected one of infer, ");
  EXPECT_EQ(UnknownMethod("morse", "").message(),
            "protocol 'morse': unknown, expected one of tfserving, tfserving_json, kserve, kserve_json, eas");
  EXPECT_TRUE(IsJson("tfserving_json"));
  EXPECT_FALSE(IsJson("tfserving"));
}

TEST(Codec, OnlyEmptyEasRequestAsksForSignature) {
  EXPECT_TRUE(AsksForSignature(FindCodec("eas"), ""));
  EXPECT_FALSE(AsksForSignature(FindCodec("eas"), "x"));
  EXPECT_FALSE(AsksForSignature(FindCodec("tfserving"), ""));
  EXPECT_FALSE(AsksForSignature(nullptr, ""));
}

TEST(Codec, FilterKeepsOrderAndRemovesDuplicateKeys) {
  const auto signatures = oracle::MakeSignatures(
      "serving_default", {{"dense", tensorflow::DT_FLOAT, {-1, 13}}, {"id", tensorflow::DT_INT64, {-1}}},
      {{"prob", tensorflow::DT_FLOAT, {-1, 1}}, {"rank", tensorflow::DT_INT32, {-1}}});
  DecodedRequest request;
  request.signature = signatures->default_signature();
  ASSERT_TRUE(FinishRequest({true, true}, {"rank", "serving_default_prob:0", "rank", "prob"}, &request).ok());
  EXPECT_EQ(request.fetches, (std::vector<int>{1, 0}));
  EXPECT_EQ(request.fetch_keys, (std::vector<std::string_view>{"rank", "serving_default_prob:0"}));
}

TEST(PrintableTest, KeepsTextAndEscapesOtherBytes) {
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
