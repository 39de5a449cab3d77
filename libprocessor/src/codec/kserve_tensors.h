// SPDX-License-Identifier: Apache-2.0
// Tensors of the Open Inference Protocol v2: names of datatypes, and values as raw bytes. Any thread may call these
// functions.
#ifndef PROCESSOR_CODEC_KSERVE_TENSORS_H_
#define PROCESSOR_CODEC_KSERVE_TENSORS_H_

#include <cstddef>
#include <string_view>

#include "absl/status/status.h"
#include "src/base/signature.h"
#include "src/codec/feed_arena.h"
#include "src/codec/predict_codec.h"
#include "src/codec/values.h"
#include "tensorflow/core/framework/tensor.h"

namespace processor {

/// Returns the name of a dtype ("FP32" for DT_FLOAT); "" if the protocol has none.
std::string_view DatatypeName(tensorflow::DataType dtype);

/// Returns the dtype of a name (DT_FLOAT for "FP32"); DT_INVALID if there is none.
tensorflow::DataType DatatypeOf(std::string_view name);

/// Checks datatype and shape of an input against the signature.
/// \return INVALID_ARGUMENT with the name of the input; UNIMPLEMENTED if the protocol has no name for its dtype.
absl::Status CheckInput(const TensorSpec& spec, std::string_view protocol, std::string_view datatype, const Dims& dims,
                        tensorflow::TensorShape* shape);

/// Returns INVALID_ARGUMENT for a number of values that does not fit the shape.
absl::Status WrongCount(const TensorSpec& spec, int64_t given, std::string_view where,
                        const tensorflow::TensorShape& shape);

/// Returns in which field of InferTensorContents the values of a dtype are; without encoding for FP16 and BF16.
const ValueLayout& KserveLayout(tensorflow::DataType dtype);

/// Whether contents have values. Clients that send raw contents may leave empty fields in them.
bool HasValues(std::string_view contents);

/// Makes a tensor of typed contents.
/// \return INVALID_ARGUMENT unless the field of the datatype has exactly the values of the shape.
absl::Status ReadTyped(const TensorSpec& spec, std::string_view contents, const tensorflow::TensorShape& shape,
                       FeedArena* arena, tensorflow::Tensor* dst);

/// Makes a tensor of little-endian numbers, or of strings that each follow their length of four bytes.
absl::Status ReadRaw(const TensorSpec& spec, std::string_view bytes, const tensorflow::TensorShape& shape,
                     FeedArena* arena, tensorflow::Tensor* dst);

/// Makes a tensor of bytes that are the value without its shape: the first open dimension follows from their number,
/// further open ones are 1. The value of a string input is one string, without its length.
absl::Status ReadValue(const TensorSpec& spec, std::string_view protocol, std::string_view bytes, FeedArena* arena,
                       tensorflow::Tensor* dst);

/// Returns the size of what WriteRaw() writes.
size_t RawSize(const tensorflow::Tensor& tensor);
/// Writes the raw bytes of a tensor whose RawSize() fits a message. \return the end of what was written.
char* WriteRaw(const tensorflow::Tensor& tensor, char* dst);

}  // namespace processor

#endif  // PROCESSOR_CODEC_KSERVE_TENSORS_H_
