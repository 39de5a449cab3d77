// SPDX-License-Identifier: Apache-2.0
// Field numbers of the messages of the Open Inference Protocol v2, package "inference".
#ifndef PROCESSOR_CODEC_KSERVE_MESSAGES_H_
#define PROCESSOR_CODEC_KSERVE_MESSAGES_H_

#include <cstdint>

namespace processor {

struct InferRequestFields {
  static constexpr uint32_t kModelName = 1;
  static constexpr uint32_t kModelVersion = 2;
  static constexpr uint32_t kId = 3;
  static constexpr uint32_t kParameters = 4;
  static constexpr uint32_t kInputs = 5;
  static constexpr uint32_t kOutputs = 6;
  static constexpr uint32_t kRawInputContents = 7;
};

struct InferResponseFields {
  static constexpr uint32_t kModelName = 1;
  static constexpr uint32_t kModelVersion = 2;
  static constexpr uint32_t kId = 3;
  static constexpr uint32_t kOutputs = 5;
  static constexpr uint32_t kRawOutputContents = 6;
};

/// InferInputTensor, InferOutputTensor and (name alone) InferRequestedOutputTensor.
struct InferTensorFields {
  static constexpr uint32_t kName = 1;
  static constexpr uint32_t kDatatype = 2;
  static constexpr uint32_t kShape = 3;
  static constexpr uint32_t kOutputParameters = 2;  // of InferRequestedOutputTensor
  static constexpr uint32_t kInputParameters = 4;
  static constexpr uint32_t kContents = 5;
};

/// Entries of the maps of parameters, and InferParameter.
struct InferParameterFields {
  static constexpr uint32_t kKey = 1;
  static constexpr uint32_t kValue = 2;
  static constexpr uint32_t kBoolParam = 1;
  static constexpr uint32_t kInt64Param = 2;
  static constexpr uint32_t kStringParam = 3;
  static constexpr uint32_t kDoubleParam = 4;
  static constexpr uint32_t kUint64Param = 5;
};

}  // namespace processor

#endif  // PROCESSOR_CODEC_KSERVE_MESSAGES_H_
