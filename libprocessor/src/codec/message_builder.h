// SPDX-License-Identifier: Apache-2.0
// Builds small protobuf messages from the inside out, where speed does not matter.
#ifndef PROCESSOR_CODEC_MESSAGE_BUILDER_H_
#define PROCESSOR_CODEC_MESSAGE_BUILDER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "src/codec/wire.h"

namespace processor {

/// Owns the bytes of one message. One thread uses it.
class MessageBuilder {
 public:
  /// Appends a string, bytes or an inner message; an empty one is omitted unless `keep`.
  MessageBuilder& Bytes(uint32_t number, std::string_view content, bool keep = false) {
    if (content.empty() && !keep) return *this;
    const size_t begin = bytes_.size();
    bytes_.resize(begin + BytesFieldSize(number, content.size()));
    WireWriter(bytes_.data() + begin).BytesField(number, content);
    return *this;
  }

  /// Appends a number, bool or enum; 0 is omitted.
  MessageBuilder& Varint(uint32_t number, uint64_t value) {
    if (value == 0) return *this;
    const size_t begin = bytes_.size();
    bytes_.resize(begin + TagSize(number) + VarintSize(value));
    WireWriter(bytes_.data() + begin).VarintField(number, value);
    return *this;
  }

  MessageBuilder& Double(uint32_t number, double value) {
    const size_t begin = bytes_.size();
    bytes_.resize(begin + TagSize(number) + sizeof value);
    WireWriter writer(bytes_.data() + begin);
    writer.Tag(number, WireType::kFixed64);
    writer.Raw(&value, sizeof value);
    return *this;
  }

  const std::string& bytes() const { return bytes_; }

 private:
  std::string bytes_;
};

}  // namespace processor

#endif  // PROCESSOR_CODEC_MESSAGE_BUILDER_H_
