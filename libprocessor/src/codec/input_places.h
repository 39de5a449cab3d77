// SPDX-License-Identifier: Apache-2.0
// Which inputs of a signature a request has brought.
#ifndef PROCESSOR_CODEC_INPUT_PLACES_H_
#define PROCESSOR_CODEC_INPUT_PLACES_H_

#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "src/base/signature.h"

namespace processor {

class InputPlaces {
 public:
  explicit InputPlaces(const Signature& signature) : signature_(signature), seen_(signature.inputs().size()) {}

  /// Finds the place of an input by alias or tensor name, and marks it.
  /// \return INVALID_ARGUMENT if the signature has no such input or the request has brought it before.
  absl::Status Take(std::string_view key, int* position);

  const std::vector<bool>& seen() const { return seen_; }

 private:
  const Signature& signature_;
  std::vector<bool> seen_;
};

}  // namespace processor

#endif  // PROCESSOR_CODEC_INPUT_PLACES_H_
