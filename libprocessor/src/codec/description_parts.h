// SPDX-License-Identifier: Apache-2.0
// The parts of Describe (descriptions.h), one file for each family of protocols.
#ifndef PROCESSOR_CODEC_DESCRIPTION_PARTS_H_
#define PROCESSOR_CODEC_DESCRIPTION_PARTS_H_

#include <string>
#include <string_view>

#include "src/codec/descriptions.h"

namespace processor {

/// The model that is meant. NOT_FOUND if it is not there.
absl::Status FindModel(const HostView& host, const ModelSpecView& spec, const ModelView** dst);

/// The version that is meant: by number, by label, else the baseline. NOT_FOUND if it is not there.
absl::Status FindVersion(const ModelView& model, const ModelSpecView& spec, const VersionView** dst);

/// FindModel, FindVersion, and UNAVAILABLE if the version is not loaded.
absl::Status FindLoaded(const HostView& host, const ModelSpecView& spec, const ModelView** model,
                        const VersionView** version);

/// INVALID_ARGUMENT: the bytes of a request cannot be taken apart.
absl::Status MalformedQuestion(std::string_view method, std::string_view protocol);

/// Gives the text to a response. RESOURCE_EXHAUSTED if memory is short.
absl::Status Answer(std::string_view text, Response* dst);

absl::Status DescribeTfServing(std::string_view method, std::string_view bytes, const ModelSpecView& spec,
                               const HostView& host, Response* dst);
absl::Status DescribeTfServingJson(std::string_view method, const ModelSpecView& spec, const HostView& host,
                                   Response* dst);
absl::Status DescribeKserve(std::string_view method, std::string_view bytes, const ModelSpecView& spec,
                            const HostView& host, Response* dst);
absl::Status DescribeKserveJson(std::string_view method, std::string_view bytes, const ModelSpecView& spec,
                                const HostView& host, Response* dst);

/// Reads whether the body of a question for the repository index, which may be empty, asks for ready versions alone.
absl::Status ReadIndexBody(std::string_view bytes, bool* only_ready);

/// Configuration and statistics, which Triton has beyond the protocol.
absl::Status DescribeTriton(std::string_view method, const ModelSpecView& spec, const HostView& host, Response* dst);
absl::Status DescribeTritonJson(std::string_view method, const ModelSpecView& spec, const HostView& host,
                                Response* dst);

}  // namespace processor

#endif  // PROCESSOR_CODEC_DESCRIPTION_PARTS_H_
