// SPDX-License-Identifier: Apache-2.0
// Parameters of requests of the Open Inference Protocol v2.
#ifndef PROCESSOR_CODEC_KSERVE_PARAMETERS_H_
#define PROCESSOR_CODEC_KSERVE_PARAMETERS_H_

#include <cstddef>
#include <limits>
#include <string_view>

#include "absl/status/status.h"

namespace processor {

/// The header length (RequestOptions) of a request without JSON, whose bytes are the value of the only input. Clients send
/// it as "Inference-Header-Content-Length: 0".
constexpr size_t kNoHeader = std::numeric_limits<size_t>::max();

/// Refuses parameters that would change the response but are not supported: classes instead of scores, and shared memory.
/// Other unknown parameters are ignored.
/// \param where  "output: parameter" or the like, for the message.
/// \return INVALID_ARGUMENT.
absl::Status RefuseParameter(std::string_view where, std::string_view name);

}  // namespace processor

#endif  // PROCESSOR_CODEC_KSERVE_PARAMETERS_H_
