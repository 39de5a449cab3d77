// SPDX-License-Identifier: Apache-2.0
// The codecs done once more with generated protobuf code and TensorFlow's own conversions: slow, plain, and independent
// of libprocessor/src/codec. Tests, fuzzers and the benchmark compare with it.
#ifndef PROCESSOR_TESTS_CODEC_ORACLE_H_
#define PROCESSOR_TESTS_CODEC_ORACLE_H_

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "predict.pb.h"
#include "src/base/signature.h"
#include "src/codec/protocols.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow_serving.pb.h"

namespace processor::oracle {

/// One input or output of a signature under test. A dimension of -1 is any.
struct Spec {
  std::string alias;
  tensorflow::DataType dtype;
  std::vector<int64_t> dims;
  bool unknown_rank = false;
};

struct SignatureSpec {
  std::string name;
  std::vector<Spec> inputs, outputs;
  std::string method_name = "tensorflow/serving/predict";
};

/// A model's signatures; the first is the default. Tensor names are "<signature>_<alias>:0".
std::unique_ptr<SignatureSet> MakeSignatures(const std::vector<SignatureSpec>& specs);
std::unique_ptr<SignatureSet> MakeSignatures(const std::string& name, const std::vector<Spec>& inputs,
                                             const std::vector<Spec>& outputs);

/// Every dtype that the protocol has.
std::vector<tensorflow::DataType> DtypesOf(std::string_view protocol);

/// The tensor as a message, in typed fields.
void ToMessage(const tensorflow::Tensor& tensor, tensorflow::eas::ArrayProto* dst);
void ToMessage(const tensorflow::Tensor& tensor, tensorflow::TensorProto* dst);

/// The tensor of a message. False if the message is not a tensor of `dtype`.
bool ToTensor(const tensorflow::eas::ArrayProto& message, tensorflow::DataType dtype, tensorflow::Tensor* dst);
bool ToTensor(const tensorflow::TensorProto& message, tensorflow::DataType dtype, tensorflow::Tensor* dst);

/// The positions of the outputs of those names; no names: of all outputs. False for a name that is not there, or is
/// there twice if that is an error (`once`).
bool WantedFetches(const Signature& signature, const std::vector<std::string>& names, bool once,
                   std::vector<int>* fetches);

/// Tensors of both equal dtype, shape and bits.
bool Same(const tensorflow::Tensor& a, const tensorflow::Tensor& b);

/// A tensor of any bits (bool: 0 and 1; strings: 0 to 40 bytes), the same for the same seed. Half and bfloat16 have no
/// NaN, whose bits do not survive a way through float.
tensorflow::Tensor RandomTensor(tensorflow::DataType dtype, const tensorflow::TensorShape& shape, uint64_t seed);

}  // namespace processor::oracle

#endif  // PROCESSOR_TESTS_CODEC_ORACLE_H_
