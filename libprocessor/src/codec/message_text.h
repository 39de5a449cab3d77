// SPDX-License-Identifier: Apache-2.0
// Texts of the errors that clients of a codec read. Any thread may call these functions.
#ifndef PROCESSOR_CODEC_MESSAGE_TEXT_H_
#define PROCESSOR_CODEC_MESSAGE_TEXT_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "src/base/signature.h"
#include "tensorflow/core/framework/types.h"

namespace processor {

/// Returns a name from outside as printable ASCII of about 128 characters at most, fit for a log and a gRPC status.
std::string Printable(std::string_view name);

/// Returns the name of a dtype: "DT_FLOAT", or "number 99" if it has none.
std::string DtypeName(tensorflow::DataType dtype);

/// Returns INVALID_ARGUMENT for an input whose message cannot be read.
absl::Status MalformedInput(const TensorSpec& spec);

/// Returns INVALID_ARGUMENT for an input that the signature does not have.
absl::Status UnknownInput(const Signature& signature, std::string_view key);

/// Returns UNIMPLEMENTED: "output 'x': dtype DT_UINT32, expected one that protocol 'eas' has". `kind` is "input" or
/// "output".
absl::Status NotInProtocol(std::string_view kind, std::string_view name, tensorflow::DataType dtype,
                           std::string_view protocol);

}  // namespace processor

#endif  // PROCESSOR_CODEC_MESSAGE_TEXT_H_
