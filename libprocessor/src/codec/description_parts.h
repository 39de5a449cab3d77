// SPDX-License-Identifier: Apache-2.0
// The parts of Describe() (descriptions.h), one file for each family of protocols. Any thread may call them.
#ifndef PROCESSOR_CODEC_DESCRIPTION_PARTS_H_
#define PROCESSOR_CODEC_DESCRIPTION_PARTS_H_

#include <string>
#include <string_view>

#include "src/codec/descriptions.h"

namespace processor {

/// Finds the model of a request. \return NOT_FOUND if it is not served.
absl::Status FindModel(const HostView& host, const ModelSpecView& spec, const ModelView** dst);

/// Finds the version of a request by number or label; without these, the baseline. \return NOT_FOUND if it is not served.
absl::Status FindVersion(const ModelView& model, const ModelSpecView& spec, const VersionView** dst);

/// Finds model and version. \return as FindModel() and FindVersion(), and UNAVAILABLE if the version is not loaded.
absl::Status FindLoaded(const HostView& host, const ModelSpecView& spec, const ModelView** model,
                        const VersionView** version);

/// Returns INVALID_ARGUMENT for bytes of a request that cannot be read.
absl::Status MalformedQuestion(std::string_view method, std::string_view protocol);

/// Makes the text the body of a response. \return RESOURCE_EXHAUSTED if there is no memory.
absl::Status Answer(std::string_view text, Response* dst);

absl::Status DescribeTfServing(std::string_view method, std::string_view bytes, const ModelSpecView& spec,
                               const HostView& host, Response* dst);
absl::Status DescribeTfServingJson(std::string_view method, const ModelSpecView& spec, const HostView& host,
                                   Response* dst);
absl::Status DescribeKserve(std::string_view method, std::string_view bytes, const ModelSpecView& spec,
                            const HostView& host, Response* dst);
absl::Status DescribeKserveJson(std::string_view method, std::string_view bytes, const ModelSpecView& spec,
                                const HostView& host, Response* dst);

/// Reads whether the body of a request for the repository index, which may be empty, asks for ready versions only.
absl::Status ReadIndexBody(std::string_view bytes, bool* only_ready);

/// Describe configuration and statistics, which Triton adds to the protocol.
absl::Status DescribeTriton(std::string_view method, const ModelSpecView& spec, const HostView& host, Response* dst);
absl::Status DescribeTritonJson(std::string_view method, const ModelSpecView& spec, const HostView& host,
                                Response* dst);

}  // namespace processor

#endif  // PROCESSOR_CODEC_DESCRIPTION_PARTS_H_
