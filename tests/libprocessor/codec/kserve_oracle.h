// SPDX-License-Identifier: Apache-2.0
// The part of oracle.h and differential.h for protocol "kserve".
#ifndef PROCESSOR_TESTS_CODEC_KSERVE_ORACLE_H_
#define PROCESSOR_TESTS_CODEC_KSERVE_ORACLE_H_

#include <random>
#include <string>
#include <vector>

#include "inference.pb.h"
#include "oracle.h"

namespace processor::oracle {

/// "FP32" of DT_FLOAT.
std::string DatatypeOf(tensorflow::DataType dtype);

/// Whether the protocol has typed fields for the dtype.
bool HasContents(tensorflow::DataType dtype);

/// The values in typed fields, and as raw contents.
void ToContents(const tensorflow::Tensor& tensor, inference::InferTensorContents* dst);
std::string ToRaw(const tensorflow::Tensor& tensor);

/// A tensor of those values; false if they are not exactly as many as the shape wants.
bool FromContents(const inference::InferTensorContents& contents, tensorflow::DataType dtype,
                  const tensorflow::TensorShape& shape, tensorflow::Tensor* dst);
bool FromRaw(const std::string& raw, tensorflow::DataType dtype, const tensorflow::TensorShape& shape,
             tensorflow::Tensor* dst);

/// Adds an input with name, datatype and shape; the values in typed fields or, if `raw`, in raw_input_contents.
void AddInput(const std::string& name, const tensorflow::Tensor& tensor, bool raw,
              inference::ModelInferRequest* request);

/// The tensor of output i of an answer, raw or typed.
bool OutputOf(const inference::ModelInferResponse& response, int i, tensorflow::DataType dtype,
              tensorflow::Tensor* dst);

/// As in differential.h.
std::string RandomKserveRequest(std::mt19937_64* random);

/// What generated code makes of a request. False if it is wrong.
bool Wanted(const inference::ModelInferRequest& request, const SignatureSet& signatures, const Signature** signature,
            std::vector<tensorflow::Tensor>* feeds, std::vector<int>* fetches);

/// What is wrong with the bytes of an answer whose one output is the request's first feed, or "".
std::string CompareAnswer(const inference::ModelInferRequest& message, const DecodedRequest& request,
                          const std::string& body);

}  // namespace processor::oracle

#endif  // PROCESSOR_TESTS_CODEC_KSERVE_ORACLE_H_
