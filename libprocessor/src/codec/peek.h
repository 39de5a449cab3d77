// SPDX-License-Identifier: Apache-2.0
// The parts of PeekInput() (model_spec.h), one for each kind of request. Any thread may call them.
#ifndef PROCESSOR_CODEC_PEEK_H_
#define PROCESSOR_CODEC_PEEK_H_

#include <string_view>

#include "src/codec/key_collector.h"

namespace processor {

enum class PeekOutcome : uint8_t {
  kFound,      // `key` has the value if there is one
  kDifferent,  // values differ, or are of another dtype
  kMalformed,
};

/// Reads strings that each follow their length, as in raw contents.
PeekOutcome PeekRawStrings(std::string_view raw, KeyCollector* key);

PeekOutcome PeekPredictJson(std::string_view body, std::string_view input_name, KeyCollector* key);
PeekOutcome PeekExamplesJson(std::string_view body, std::string_view input_name, KeyCollector* key);
PeekOutcome PeekInferJson(std::string_view body, size_t header_length, std::string_view input_name, KeyCollector* key);

}  // namespace processor

#endif  // PROCESSOR_CODEC_PEEK_H_
