// SPDX-License-Identifier: Apache-2.0
// Bodies of a JSON protocol through its codec.
#ifndef PROCESSOR_TESTS_CODEC_JSON_FIXTURE_H_
#define PROCESSOR_TESTS_CODEC_JSON_FIXTURE_H_

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "nlohmann/json.hpp"
#include "oracle.h"

namespace processor {

class JsonFixture : public testing::Test {
 protected:
  explicit JsonFixture(const char* protocol) : codec_(FindCodec(protocol)) {}

  absl::Status Decode(std::string_view bytes, size_t header_length = 0) {
    // A copy of exactly the size, so that a checker of memory sees a read beyond the end.
    bytes_ = std::vector<char>(bytes.begin(), bytes.end());
    return codec_->Decode({bytes_.data(), bytes_.size()}, *signatures_, {"", header_length}, &request_);
  }

  absl::StatusOr<std::string> Encode(const std::vector<tensorflow::Tensor>& outputs) {
    processor::Response response;
    const absl::Status status = codec_->Encode(request_, outputs, {7, "ranking"}, &response);
    if (!status.ok()) return status;
    header_length_ = response.header_length;
    return std::string(response.body.data(), response.body.size());
  }

  /// The words of the error, which is INVALID_ARGUMENT.
  std::string Words(std::string_view bytes) {
    const absl::Status status = Decode(bytes);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << status;
    return std::string(status.message());
  }

  template <typename T>
  static std::vector<T> Values(const tensorflow::Tensor& tensor) {
    const auto flat = tensor.flat<T>();
    return {flat.data(), flat.data() + flat.size()};
  }

  const Codec* const codec_;
  std::unique_ptr<SignatureSet> signatures_;
  std::vector<char> bytes_;
  size_t header_length_ = 0;
  DecodedRequest request_;
};

}  // namespace processor

#endif  // PROCESSOR_TESTS_CODEC_JSON_FIXTURE_H_
