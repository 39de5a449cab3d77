// SPDX-License-Identifier: Apache-2.0
// What the bytes of a request say before its tensors are read: which model it is for, and the value that an experiment
// goes by. A host with many models must know both before it has a signature to decode by.
#ifndef PROCESSOR_CODEC_MODEL_SPEC_H_
#define PROCESSOR_CODEC_MODEL_SPEC_H_

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"

namespace processor {

/// Which model a request is for. Views point into the bytes; empty ones say nothing.
struct ModelSpecView {
  std::string_view name;
  std::optional<int64_t> version;
  std::string_view label;
  std::string_view signature_name;
};

/// Reads the model out of a request, and nothing else of it.
/// `method`: one of the protocol's, see docs/model_host.md; "" for its default.
/// \return INVALID_ARGUMENT for bytes that are no such request, as far as they were looked at.
absl::Status PeekModel(std::string_view protocol, std::string_view method, std::string_view bytes, ModelSpecView* spec);

/// The value of an input of dtype string or int64 (as decimal text) if it has one, or several that are equal; none in
/// any other case, also for malformed bytes: decoding will tell.
std::optional<std::string> PeekInput(std::string_view protocol, std::string_view method, std::string_view bytes,
                                     std::string_view input);

/// Reads TensorFlow Serving's ModelSpec on top of what `spec` holds; of version and label the later one counts.
/// False if it is malformed.
bool ReadModelSpec(std::string_view message, ModelSpecView* spec);

}  // namespace processor

#endif  // PROCESSOR_CODEC_MODEL_SPEC_H_
