// SPDX-License-Identifier: Apache-2.0
// Any bytes through a codec and through generated protobuf code, and whether both agree. For tests and fuzzers.
#ifndef PROCESSOR_TESTS_CODEC_DIFFERENTIAL_H_
#define PROCESSOR_TESTS_CODEC_DIFFERENTIAL_H_

#include <cstdint>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "src/base/signature.h"

namespace processor::oracle {

/// Signatures for requests of any kind: one for each dtype of the protocol, named after it, with an input and an output
/// "x" of any shape; and the default, "wide", with inputs of fixed shapes.
std::unique_ptr<SignatureSet> MakeWideSignatures(std::string_view protocol);

/// Decodes `bytes`, and if that works encodes the inputs as a response (for the signatures of one dtype).
/// \return "" if generated code agrees, else what differs. Bytes that generated code cannot parse need only be survived.
std::string Compare(std::string_view protocol, std::string_view bytes, const SignatureSet& signatures);

/// A serialized request to MakeWideSignatures that both must accept, at random.
std::string RandomRequest(std::string_view protocol, std::mt19937_64* random);

/// The same request with its fields in another order wherever order means nothing, some of the packed fields unpacked
/// and unknown fields in between.
std::string Rearranged(std::string_view protocol, std::string_view bytes, std::mt19937_64* random);

/// The bytes with a few of them changed, cut, doubled or moved.
std::string Mutated(std::string_view bytes, std::mt19937_64* random);

}  // namespace processor::oracle

#endif  // PROCESSOR_TESTS_CODEC_DIFFERENTIAL_H_
