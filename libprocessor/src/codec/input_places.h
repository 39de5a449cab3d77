// SPDX-License-Identifier: Apache-2.0
// The inputs of a signature that a request has.
#ifndef PROCESSOR_CODEC_INPUT_PLACES_H_
#define PROCESSOR_CODEC_INPUT_PLACES_H_

#include <string_view>

#include "absl/status/status.h"
#include "src/base/signature.h"
#include "src/codec/codec.h"

namespace processor {

/// Finds inputs and remembers which were found. The decoder of one request owns it; one thread uses it.
class InputPlaces {
 public:
  explicit InputPlaces(const Signature& signature) : signature_(signature), seen_(signature.inputs().size()) {}

  /// Finds the position of an input by alias or tensor name, and marks it as seen.
  /// \return INVALID_ARGUMENT if the signature has no such input or it was seen before.
  absl::Status Take(std::string_view key, int* position);

  const SeenInputs& seen() const { return seen_; }

 private:
  const Signature& signature_;
  SeenInputs seen_;
};

}  // namespace processor

#endif  // PROCESSOR_CODEC_INPUT_PLACES_H_
