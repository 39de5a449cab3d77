// SPDX-License-Identifier: Apache-2.0
// A plain reader of protobuf's wire format. The benchmarks read messages with it rather than with the library's codecs,
// so that a fault in a codec cannot hide in both sides of a comparison.
#ifndef PROCESSOR_BENCH_WIRE_H_
#define PROCESSOR_BENCH_WIRE_H_

#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string_view>

namespace processor::bench {

/// Walks over the fields of one message. Throws std::runtime_error where the bytes are damaged.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : bytes_(bytes) {}

  /// Steps to the next field; false at the end.
  bool Next() {
    if (bytes_.empty()) return false;
    const uint64_t tag = TakeVarint();
    field_ = static_cast<int>(tag >> 3);
    switch (tag & 7) {
      case 0:
        varint_ = TakeVarint();
        value_ = {};
        return true;
      case 1:
        value_ = Take(8);
        return true;
      case 2:
        value_ = Take(TakeVarint());
        return true;
      case 5:
        value_ = Take(4);
        return true;
      default:
        throw std::runtime_error("message: unknown wire type");
    }
  }

  int field() const { return field_; }
  /// Value of a varint field.
  uint64_t varint() const { return varint_; }
  /// Bytes of any other field.
  std::string_view value() const { return value_; }

  /// Reads a varint where one is packed; see empty().
  uint64_t TakeVarint() {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const uint8_t byte = static_cast<uint8_t>(Take(1)[0]);
      value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if (byte < 0x80) return value;
    }
    throw std::runtime_error("message: varint too long");
  }

  bool empty() const { return bytes_.empty(); }

 private:
  std::string_view Take(uint64_t size) {
    if (size > bytes_.size()) throw std::runtime_error("message: cut short");
    const std::string_view taken = bytes_.substr(0, size);
    bytes_.remove_prefix(size);
    return taken;
  }

  std::string_view bytes_;
  int field_ = 0;
  uint64_t varint_ = 0;
  std::string_view value_;
};

}  // namespace processor::bench

#endif  // PROCESSOR_BENCH_WIRE_H_
