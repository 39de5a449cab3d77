// SPDX-License-Identifier: Apache-2.0
// One protocol's generated messages and its codec side by side, for tests that hold for every protocol.
#ifndef PROCESSOR_TESTS_CODEC_CODEC_FIXTURE_H_
#define PROCESSOR_TESTS_CODEC_CODEC_FIXTURE_H_

#include <gtest/gtest.h>

#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "oracle.h"

namespace processor {

struct EasMessages {
  static constexpr const char* kName = "eas";
  static constexpr absl::StatusCode kUnknownSignature = absl::StatusCode::kNotFound;
  static constexpr absl::StatusCode kUnknownOutput = absl::StatusCode::kNotFound;
  static constexpr bool kOutputsOnce = false;
  using Request = tensorflow::eas::PredictRequest;
  using Response = tensorflow::eas::PredictResponse;
  using TensorMessage = tensorflow::eas::ArrayProto;

  static void SetSignature(const std::string& name, Request* request) { request->set_signature_name(name); }
  static const std::string& SignatureName(const Request& request) { return request.signature_name(); }
  static void SetDims(const std::vector<int64_t>& dims, TensorMessage* message) {
    message->mutable_array_shape()->mutable_dim()->Assign(dims.begin(), dims.end());
  }
  static void SetDtype(int dtype, TensorMessage* message) {
    message->set_dtype(static_cast<tensorflow::eas::ArrayDataType>(dtype));
  }
};

struct TfServingMessages {
  static constexpr const char* kName = "tfserving";
  static constexpr absl::StatusCode kUnknownSignature = absl::StatusCode::kFailedPrecondition;
  static constexpr absl::StatusCode kUnknownOutput = absl::StatusCode::kInvalidArgument;
  static constexpr bool kOutputsOnce = true;
  using Request = tensorflow::serving::PredictRequest;
  using Response = tensorflow::serving::PredictResponse;
  using TensorMessage = tensorflow::TensorProto;

  static void SetSignature(const std::string& name, Request* request) {
    request->mutable_model_spec()->set_signature_name(name);
  }
  static const std::string& SignatureName(const Request& request) { return request.model_spec().signature_name(); }
  static void SetDims(const std::vector<int64_t>& dims, TensorMessage* message) {
    message->mutable_tensor_shape()->clear_dim();
    for (const int64_t dim : dims) message->mutable_tensor_shape()->add_dim()->set_size(dim);
  }
  static void SetDtype(int dtype, TensorMessage* message) {
    message->set_dtype(static_cast<tensorflow::DataType>(dtype));
  }
};

/// Decodes requests to a model with the given inputs; "prob" and "rank" are its outputs.
template <typename Messages>
class CodecFixture : public testing::Test {
 protected:
  using Request = typename Messages::Request;
  using Response = typename Messages::Response;
  using TensorMessage = typename Messages::TensorMessage;

  void SetInputs(const std::vector<oracle::Spec>& inputs) {
    signatures_ = oracle::MakeSignatures(
        "serving_default", inputs, {{"prob", tensorflow::DT_FLOAT, {-1, 1}}, {"rank", tensorflow::DT_INT32, {-1}}});
  }

  absl::Status DecodeBytes(std::string_view bytes, std::string_view signature_override = "") {
    // A copy of exactly the size, so that a checker of memory sees a read beyond the end.
    bytes_ = std::vector<char>(bytes.begin(), bytes.end());
    return codec_->Decode(std::string_view(bytes_.data(), bytes_.size()), *signatures_, {signature_override},
                          &request_);
  }
  absl::Status Decode(const Request& request) { return DecodeBytes(request.SerializeAsString()); }

  TensorMessage& Input(Request* request, const std::string& key) { return (*request->mutable_inputs())[key]; }

  const Codec* codec_ = FindCodec(Messages::kName);
  std::unique_ptr<SignatureSet> signatures_;
  std::vector<char> bytes_;
  DecodedRequest request_;
};

}  // namespace processor

#endif  // PROCESSOR_TESTS_CODEC_CODEC_FIXTURE_H_
