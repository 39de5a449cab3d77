// SPDX-License-Identifier: Apache-2.0
// JSON that is none, or hostile, through every protocol of JSON.
#include <random>

#include "json_fixture.h"

namespace processor {
namespace {

using Json = nlohmann::json;

class JsonDocumentTest : public testing::TestWithParam<std::pair<const char*, const char*>> {
 protected:
  absl::Status Decode(std::string_view bytes) {
    const std::vector<char> copy(bytes.begin(), bytes.end());
    const Codec* const codec = FindCodec(GetParam().first, GetParam().second);
    return codec->Decode({copy.data(), copy.size()}, *signatures_, {}, &request_);
  }

  const std::unique_ptr<SignatureSet> signatures_ = oracle::MakeSignatures(
      {{"serving_default", {{"x", tensorflow::DT_FLOAT, {}, true}}, {{"y", tensorflow::DT_FLOAT, {}, true}}}});
  DecodedRequest request_;
};

INSTANTIATE_TEST_SUITE_P(Protocols, JsonDocumentTest,
                         testing::Values(std::pair("tfserving_json", "predict"), std::pair("tfserving_json", "regress"),
                                         std::pair("kserve_json", "infer")),
                         [](const auto& info) { return std::string(info.param.second); });

TEST_P(JsonDocumentTest, RefusesDocumentsThatAreNotObjects) {
  using namespace std::string_view_literals;
  for (const std::string_view text : {""sv,
                                      " "sv,
                                      "{"sv,
                                      "}"sv,
                                      "[]"sv,
                                      "1"sv,
                                      "\"a\""sv,
                                      "null"sv,
                                      "{\"a\":}"sv,
                                      "{\"a\":1,}"sv,
                                      "{'a':1}"sv,
                                      "{} {}"sv,
                                      "{}x"sv,
                                      "{}\0"sv,
                                      "{\"a\":01}"sv,
                                      "{\"a\":+1}"sv,
                                      "{\"a\":.5}"sv,
                                      "{\"a\":1.}"sv,
                                      "{\"a\":0x10}"sv,
                                      "{\"a\":tru}"sv,
                                      "{\"a\":\"\n\"}"sv,
                                      "{\"a\":\"\\x\"}"sv,
                                      "{\"a\":\"\\ud800\"}"sv,
                                      "{\"a\":\"\xff\"}"sv,
                                      "{\"a\":\"\xc0\x80\"}"sv,
                                      "{\"a\":\"\xed\xa0\x80\"}"sv,
                                      "{\"\xff\":1}"sv,
                                      "{\"a\":1} //"sv,
                                      "{\"a\":1e400}"sv}) {
    const absl::Status status = Decode(text);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_EQ(status.message().substr(0, 8), "request:") << text << " " << status;
  }
}

TEST_P(JsonDocumentTest, DeepNestingDoesNotOverflowTheStack) {
  // A tensor may have 254 dimensions.
  for (const char* key : {"instances", "inputs", "examples", "other"}) {
    for (const int depth : {300, 1000, 1100, 200000}) {
      const std::string lists = std::string(depth, '[') + std::string(depth, ']');
      const std::string objects = [depth] {
        std::string text;
        for (int i = 0; i < depth; ++i) text += "{\"a\":";
        return text + "1" + std::string(depth, '}');
      }();
      for (const std::string& value : {lists, objects, std::string(depth, '[')}) {
        EXPECT_FALSE(Decode("{\"" + std::string(key) + "\":" + value + "}").ok());
      }
      const std::string data = R"({"inputs":[{"name":"x","shape":[0],"datatype":"FP32","data":)" + lists + "}]}";
      Decode(data).IgnoreError();
    }
  }
}

TEST_P(JsonDocumentTest, LargeBodiesAreRefused) {
  const std::string body(std::string::size_type{65} << 20, ' ');
  EXPECT_EQ(Decode(body), absl::InvalidArgumentError("request: 68157440 bytes of JSON, expected at most 67108864"));
}

TEST_P(JsonDocumentTest, AcceptsSameDamagedBodiesAsAnotherParser) {
  const std::vector<std::string> seeds = {
      R"({"instances": [[1.5, -2e3], [0, 7]]})",
      R"({"signature_name": "serving_default", "inputs": {"x": [1, 2, 3.25]}, "\u00e4": ["\n", null, true]})",
      R"({"examples": [{"a": [1, 2.5], "b": {"b64": "aGVsbG8="}}], "context": {"c": "text \ud83d\ude00"}})",
      R"({"id": "1", "inputs": [{"name": "x", "shape": [2, 2], "datatype": "FP32", "data": [[1, 2], [3, 4]]}],
          "outputs": [{"name": "y", "parameters": {"binary_data": true}}]})",
  };
  std::mt19937_64 random(11);
  int accepted = 0;
  for (int i = 0; i < 20000; ++i) {
    std::string text = seeds[random() % seeds.size()];
    for (int left = 1 + static_cast<int>(random() % 3); left > 0; --left) {
      const size_t at = random() % text.size();
      constexpr char kBytes[] = "{}[]\",:\\0123456789.eE+-truefalsn \n\x80\xc3";
      if (random() % 3 == 0) {
        text.erase(at, 1 + random() % 4);
      } else if (random() % 2 == 0) {
        text.insert(at, 1, kBytes[random() % (sizeof(kBytes) - 1)]);
      } else {
        text[at] = kBytes[random() % (sizeof(kBytes) - 1)];
      }
      if (text.empty()) text = "{}";
    }
    const absl::Status status = Decode(text);
    if (status.ok()) ++accepted;
    const bool syntax = status.message().find("no JSON") != std::string::npos;
    // Numbers beyond double are an error to both; beyond 64 bits only to ours.
    if (syntax && text.find_first_of("0123456789") != std::string::npos && Json::accept(text)) {
      EXPECT_TRUE(std::any_of(text.begin(), text.end(), [](char byte) { return byte >= '0' && byte <= '9'; })) << text;
      continue;
    }
    EXPECT_EQ(syntax, !Json::accept(text)) << text << " " << status;
  }
  if (GetParam().second == std::string("predict")) {
    EXPECT_GT(accepted, 100);
  }
}

}  // namespace
}  // namespace processor
