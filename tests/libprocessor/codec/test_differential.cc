// SPDX-License-Identifier: Apache-2.0
// Random requests through the codecs and through generated protobuf code: both must agree on every one.
#include "differential.h"

#include <gtest/gtest.h>

#include "oracle.h"

namespace processor {
namespace {

std::string Hex(std::string_view bytes) {
  std::string text;
  for (const char byte : bytes) {
    char two[3];
    std::snprintf(two, sizeof(two), "%02x", static_cast<uint8_t>(byte));
    text += two;
  }
  return text;
}

class DifferentialTest : public testing::TestWithParam<const char*> {
 protected:
  void ExpectAgreement(std::string_view bytes) {
    const std::string difference = oracle::Compare(GetParam(), bytes, *signatures_);
    ASSERT_EQ(difference, "") << "request: " << Hex(bytes);
  }

  const std::unique_ptr<SignatureSet> signatures_ = oracle::MakeWideSignatures(GetParam());
  std::mt19937_64 random_{20240229};
};

INSTANTIATE_TEST_SUITE_P(Protocols, DifferentialTest, testing::Values("eas", "tfserving", "kserve"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(DifferentialTest, ValidRequestsAreAccepted) {
  for (int i = 0; i < 3000; ++i) {
    const std::string bytes = oracle::RandomRequest(GetParam(), &random_);
    DecodedRequest request;
    const absl::Status status = FindCodec(GetParam())->Decode(bytes, *signatures_, {}, &request);
    ASSERT_TRUE(status.ok()) << status << ", request: " << Hex(bytes);
    ExpectAgreement(bytes);
  }
}

TEST_P(DifferentialTest, IgnoresFieldOrderAndPacking) {
  for (int i = 0; i < 3000; ++i) {
    const std::string plain = oracle::RandomRequest(GetParam(), &random_);
    const std::string bytes = oracle::Rearranged(GetParam(), plain, &random_);
    DecodedRequest expected, request;
    const Codec* codec = FindCodec(GetParam());
    ASSERT_TRUE(codec->Decode(plain, *signatures_, {}, &expected).ok());
    const absl::Status status = codec->Decode(bytes, *signatures_, {}, &request);
    ASSERT_TRUE(status.ok()) << status << ", request: " << Hex(bytes);
    for (size_t k = 0; k < expected.feeds.size(); ++k) {
      ASSERT_TRUE(oracle::Same(expected.feeds[k], request.feeds[k])) << "request: " << Hex(bytes);
    }
    ExpectAgreement(bytes);
  }
}

TEST_P(DifferentialTest, DecodesOrRefusesDamagedRequestsAsProtobufDoes) {
  for (int i = 0; i < 30000; ++i) {
    std::string bytes = oracle::RandomRequest(GetParam(), &random_);
    if (i % 2 == 0) bytes = oracle::Rearranged(GetParam(), bytes, &random_);
    ExpectAgreement(oracle::Mutated(bytes, &random_));
  }
}

TEST_P(DifferentialTest, MergesConcatenatedRequestsAsProtobufDoes) {
  for (int i = 0; i < 3000; ++i) {
    ExpectAgreement(oracle::RandomRequest(GetParam(), &random_) + oracle::RandomRequest(GetParam(), &random_));
  }
}

TEST_P(DifferentialTest, RandomBytesDoNotCrash) {
  for (int i = 0; i < 30000; ++i) {
    std::string bytes(random_() % 64, '\0');
    for (char& byte : bytes) byte = static_cast<char>(random_());
    ExpectAgreement(bytes);
  }
}

}  // namespace
}  // namespace processor
