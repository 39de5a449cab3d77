// SPDX-License-Identifier: Apache-2.0
// Requests of given tensors in the protocols that have no messages of generated code to compare with, or are JSON.
#ifndef PROCESSOR_BENCH_CODEC_REQUESTS_H_
#define PROCESSOR_BENCH_CODEC_REQUESTS_H_

#include <string>
#include <vector>

#include "src/base/signature.h"
#include "src/codec/codec.h"
#include "tensorflow/core/framework/tensor.h"

namespace processor::bench {

struct CodecRequest {
  const char* protocol;
  const char* way;  // of those that the protocol has: "rows", "raw", ...
  std::string bytes;
  size_t header_length;
};

/// `tensors` [signature.inputs()]: the batch in every protocol and way.
std::vector<CodecRequest> MakeCodecRequests(const Signature& signature, const std::vector<tensorflow::Tensor>& tensors);

}  // namespace processor::bench

#endif  // PROCESSOR_BENCH_CODEC_REQUESTS_H_
