// SPDX-License-Identifier: Apache-2.0
// Tensors of the Open Inference Protocol v2: names of datatypes, and values as raw bytes.
#ifndef PROCESSOR_CODEC_KSERVE_TENSORS_H_
#define PROCESSOR_CODEC_KSERVE_TENSORS_H_

#include <cstddef>
#include <string_view>

#include "absl/status/status.h"
#include "src/base/signature.h"
#include "src/codec/feed_arena.h"
#include "src/codec/predict_codec.h"
#include "tensorflow/core/framework/tensor.h"

namespace processor {

/// "FP32" of DT_FLOAT; "" if the protocol has no name for it.
std::string_view DatatypeName(tensorflow::DataType dtype);

/// DT_FLOAT of "FP32"; DT_INVALID if there is none.
tensorflow::DataType DatatypeOf(std::string_view name);

/// Checks datatype and shape of an input against the signature.
/// \return INVALID_ARGUMENT with the name of the input; UNIMPLEMENTED if the protocol has no name for what it must be.
absl::Status CheckInput(const TensorSpec& spec, std::string_view protocol, std::string_view datatype, const Dims& dims,
                        tensorflow::TensorShape* shape);

/// INVALID_ARGUMENT: the number of values is not that of the shape.
absl::Status WrongCount(const TensorSpec& spec, int64_t given, std::string_view where,
                        const tensorflow::TensorShape& shape);

/// Makes a tensor of little-endian numbers, or of strings that each follow their length in four bytes.
absl::Status ReadRaw(const TensorSpec& spec, std::string_view bytes, const tensorflow::TensorShape& shape,
                     FeedArena* arena, tensorflow::Tensor* dst);

/// Makes a tensor of bytes that are the whole value and say nothing of its shape: one open dimension follows from their
/// number, further ones are 1. A value of strings is one string, without its length.
absl::Status ReadValue(const TensorSpec& spec, std::string_view protocol, std::string_view bytes, FeedArena* arena,
                       tensorflow::Tensor* dst);

/// Size of what WriteRaw writes.
size_t RawSize(const tensorflow::Tensor& tensor);
/// \return The end of what was written. Only for tensors whose RawSize is that of a message at most.
char* WriteRaw(const tensorflow::Tensor& tensor, char* dst);

}  // namespace processor

#endif  // PROCESSOR_CODEC_KSERVE_TENSORS_H_
