// SPDX-License-Identifier: Apache-2.0
// What requests of the Open Inference Protocol v2 say beside their tensors.
#ifndef PROCESSOR_CODEC_KSERVE_PARAMETERS_H_
#define PROCESSOR_CODEC_KSERVE_PARAMETERS_H_

#include <cstddef>
#include <limits>
#include <string_view>

#include "absl/status/status.h"

namespace processor {

/// A header length (RequestOptions) for a request without JSON, whose bytes are the value of the only input: what clients
/// say by "Inference-Header-Content-Length: 0".
constexpr size_t kNoHeader = std::numeric_limits<size_t>::max();

/// Refuses what would change the meaning of an answer and is not done here: classes in the place of scores, and shared
/// memory. Other unknown parameters mean nothing.
/// \param where  "output: parameter" or the like, for the message.
/// \return INVALID_ARGUMENT.
absl::Status RefuseParameter(std::string_view where, std::string_view name);

}  // namespace processor

#endif  // PROCESSOR_CODEC_KSERVE_PARAMETERS_H_
