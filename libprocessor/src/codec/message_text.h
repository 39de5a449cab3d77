// SPDX-License-Identifier: Apache-2.0
// Words for the messages that a client of a codec reads.
#ifndef PROCESSOR_CODEC_MESSAGE_TEXT_H_
#define PROCESSOR_CODEC_MESSAGE_TEXT_H_

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "src/base/signature.h"
#include "tensorflow/core/framework/types.h"

namespace processor {

/// A name from outside, fit for a log and for a gRPC status: printable ASCII, at most some 128 characters.
std::string Printable(std::string_view name);

/// "DT_FLOAT"; "dtype 99" for a number that has no name.
std::string DtypeName(tensorflow::DataType dtype);

/// INVALID_ARGUMENT: the message of an input cannot be taken apart.
absl::Status MalformedInput(const TensorSpec& spec);

/// INVALID_ARGUMENT: the signature has no input of that name.
absl::Status UnknownInput(const Signature& signature, std::string_view key);

/// UNIMPLEMENTED: "output 'x': dtype DT_UINT32, expected one that protocol 'eas' has". `kind` is "input" or "output".
absl::Status NotInProtocol(std::string_view kind, std::string_view name, tensorflow::DataType dtype,
                           std::string_view protocol);

}  // namespace processor

#endif  // PROCESSOR_CODEC_MESSAGE_TEXT_H_
