// SPDX-License-Identifier: Apache-2.0
// Builds small messages inside out, where speed is nothing.
#ifndef PROCESSOR_CODEC_MESSAGE_BUILDER_H_
#define PROCESSOR_CODEC_MESSAGE_BUILDER_H_

#include <cstdint>
#include <string>
#include <string_view>

#include "src/codec/wire.h"

namespace processor {

class MessageBuilder {
 public:
  /// A string, bytes or inner message; left out if empty, unless `keep`.
  MessageBuilder& Bytes(uint32_t number, std::string_view content, bool keep = false) {
    if (content.empty() && !keep) return *this;
    const size_t begin = bytes_.size();
    bytes_.resize(begin + BytesFieldSize(number, content.size()));
    WireWriter(bytes_.data() + begin).BytesField(number, content);
    return *this;
  }

  /// A number, bool or enum; left out if 0.
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
