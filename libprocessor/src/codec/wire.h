// SPDX-License-Identifier: Apache-2.0
// Reads and writes the wire format of Protocol Buffers in plain memory (docs/adr/0003).
//
// The reader never reads beyond its bytes, makes no copies and allocates nothing: what it returns points into the bytes.
// It accepts every message that the protobuf runtime accepts. Readers and writers are owned and used by one thread.
#ifndef PROCESSOR_CODEC_WIRE_H_
#define PROCESSOR_CODEC_WIRE_H_

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string_view>

namespace processor {

enum class WireType : uint8_t {
  kVarint = 0,
  kFixed64 = 1,
  kBytes = 2,
  kStartGroup = 3,
  kEndGroup = 4,
  kFixed32 = 5,
};

/// One field of a message.
struct WireField {
  uint32_t number;
  WireType type;
  /// The content of kBytes; otherwise the encoded number, as a packed field has it for one value.
  std::string_view payload;
};

/// Reads one varint. Returns its end, nullptr if it does not end within the bytes or is longer than 10 bytes.
inline const char* ReadVarint(const char* p, const char* end, uint64_t* value) {
  if (p != end && static_cast<uint8_t>(*p) < 0x80) {
    *value = static_cast<uint8_t>(*p);
    return p + 1;
  }
  uint64_t result = 0;
  for (int shift = 0; shift < 70 && p != end; shift += 7) {
    const uint64_t byte = static_cast<uint8_t>(*p++);
    result |= (byte & 0x7f) << shift;
    if (byte < 0x80) {
      *value = result;
      return p;
    }
  }
  return nullptr;
}

namespace wire_internal {

/// Reads one field of any form. Returns its end, nullptr if it is malformed or truncated.
inline const char* ReadField(const char* p, const char* end, WireField* field);

}  // namespace wire_internal

/// Reads the fields of one message in order.
class WireReader {
 public:
  explicit WireReader(std::string_view bytes) : p_(bytes.data()), end_(bytes.data() + bytes.size()) {}

  bool done() const { return p_ == end_; }
  const char* position() const { return p_; }

  /// Reads the next field; must not be called if done(). Returns false for malformed or truncated bytes.
  [[gnu::always_inline]] bool Next(WireField* field) {
    // Nearly every field of a request has a one-byte tag and either short content or a small number.
    const auto room = static_cast<size_t>(end_ - p_);
    if (room >= 2) {
      const auto tag = static_cast<uint8_t>(p_[0]);
      const auto next = static_cast<uint8_t>(p_[1]);
      if (tag >= 8 && tag < 0x80 && next < 0x80) {
        const auto type = static_cast<WireType>(tag & 7);
        if (type == WireType::kBytes && next <= room - 2) return Take(tag >> 3, type, 2, next, field);
        if (type == WireType::kVarint) return Take(tag >> 3, type, 1, 1, field);
      }
    }
    // The address of neither the reader nor the caller's field is taken here, so both stay in registers.
    WireField next_field;
    const char* const end = wire_internal::ReadField(p_, end_, &next_field);
    if (end == nullptr) return false;
    *field = next_field;
    p_ = end;
    return true;
  }

  /// Skips the fields directly after `field` that have its number, are length-delimited and short: the rest of consecutive
  /// strings. Sets `field` to the last of them and returns their number.
  int SkipRow(WireField* field) {
    if (field->type != WireType::kBytes || field->number > 15) return 0;
    const char tag = static_cast<char>(field->number << 3 | static_cast<uint32_t>(WireType::kBytes));
    const char* p = p_;
    const char* last = nullptr;
    int count = 0;
    while (end_ - p >= 2 && p[0] == tag) {
      const auto size = static_cast<int8_t>(p[1]);
      if (size < 0 || size > end_ - p - 2) break;
      last = p;
      p += 2 + size;
      ++count;
    }
    if (count > 0) field->payload = std::string_view(last + 2, static_cast<size_t>(p - last - 2));
    p_ = p;
    return count;
  }

  bool ReadVarint(uint64_t* value) {
    const char* const end = processor::ReadVarint(p_, end_, value);
    if (end == nullptr) return false;
    p_ = end;
    return true;
  }

 private:
  bool Take(uint32_t number, WireType type, size_t offset, size_t size, WireField* field) {
    field->number = number;
    field->type = type;
    field->payload = std::string_view(p_ + offset, size);
    p_ += offset + size;
    return true;
  }

  const char* p_;
  const char* end_;
};

namespace wire_internal {

constexpr int kMaxGroupDepth = 100;

inline const char* ReadTag(const char* p, const char* end, WireField* field) {
  constexpr int kMaxTagBytes = 5;
  uint64_t tag;
  const char* const next = ReadVarint(p, end, &tag);
  if (next == nullptr || next - p > kMaxTagBytes) return nullptr;
  field->number = static_cast<uint32_t>(tag) >> 3;
  field->type = static_cast<WireType>(tag & 7);
  return field->number == 0 ? nullptr : next;
}

inline const char* ReadGroup(const char* p, const char* end, int depth_left, WireField* group);

inline const char* ReadPayload(const char* p, const char* end, int depth_left, WireField* field) {
  const auto take = [&](const char* from, size_t size) -> const char* {
    if (size > static_cast<size_t>(end - from)) return nullptr;
    field->payload = std::string_view(from, size);
    return from + size;
  };
  uint64_t value;
  switch (field->type) {
    case WireType::kVarint: {
      const char* const next = ReadVarint(p, end, &value);
      return next == nullptr ? nullptr : take(p, static_cast<size_t>(next - p));
    }
    case WireType::kBytes: {
      const char* const content = ReadVarint(p, end, &value);
      return content == nullptr || value > static_cast<uint64_t>(end - content) ? nullptr : take(content, value);
    }
    case WireType::kFixed32:
      return take(p, 4);
    case WireType::kFixed64:
      return take(p, 8);
    case WireType::kStartGroup:
      return ReadGroup(p, end, depth_left, field);
    default:
      return nullptr;  // an end without a start, or a type that does not exist
  }
}

/// Skips an unknown group to its matching end; our messages have no groups.
inline const char* ReadGroup(const char* p, const char* end, int depth_left, WireField* group) {
  group->payload = {};
  while (depth_left > 0 && p != end) {
    WireField inner{};
    p = ReadTag(p, end, &inner);
    if (p == nullptr) return nullptr;
    if (inner.type == WireType::kEndGroup) return inner.number == group->number ? p : nullptr;
    p = ReadPayload(p, end, depth_left - 1, &inner);
    if (p == nullptr) return nullptr;
  }
  return nullptr;
}

inline const char* ReadField(const char* p, const char* end, WireField* field) {
  p = ReadTag(p, end, field);
  return p == nullptr ? nullptr : ReadPayload(p, end, kMaxGroupDepth, field);
}

}  // namespace wire_internal

/// Calls `visit(field)` for every field. Returns false for malformed bytes, or as soon as `visit` returns false.
template <typename Visit>
bool ForEachField(std::string_view message, Visit&& visit) {
  WireReader reader(message);
  WireField field;
  while (!reader.done()) {
    if (!reader.Next(&field) || !visit(field)) return false;
  }
  return true;
}

/// Returns the first varint of `payload`; 0 if there is none.
inline uint64_t FirstVarint(std::string_view payload) {
  uint64_t value = 0;
  return WireReader(payload).ReadVarint(&value) ? value : 0;
}

inline size_t VarintSize(uint64_t value) {
  // 7 bits a byte: ceil(bits / 7) without a division.
  return (static_cast<size_t>(64 - __builtin_clzll(value | 1)) * 9 + 64) / 64;
}

constexpr size_t TagSize(uint32_t number) { return number < 16 ? 1 : 2; }  // no message here has more than 2047

/// Returns the size of a length-delimited field with its tag and length.
inline size_t BytesFieldSize(uint32_t number, size_t size) { return TagSize(number) + VarintSize(size) + size; }

/// Writes into memory that the caller owns and whose size was computed with the functions above.
class WireWriter {
 public:
  explicit WireWriter(char* dst) : p_(dst) {}

  char* position() const { return p_; }

  void Varint(uint64_t value) {
    while (value >= 0x80) {
      *p_++ = static_cast<char>(value | 0x80);
      value >>= 7;
    }
    *p_++ = static_cast<char>(value);
  }

  void Tag(uint32_t number, WireType type) { Varint(number << 3 | static_cast<uint32_t>(type)); }

  void Raw(const void* src, size_t size) {
    if (size != 0) std::memcpy(p_, src, size);
    p_ += size;
  }

  void VarintField(uint32_t number, uint64_t value) {
    Tag(number, WireType::kVarint);
    Varint(value);
  }

  void BytesField(uint32_t number, std::string_view bytes) {
    BytesHeader(number, bytes.size());
    Raw(bytes.data(), bytes.size());
  }

  /// Writes the tag and length of a field whose content is written next.
  void BytesHeader(uint32_t number, size_t size) {
    Tag(number, WireType::kBytes);
    Varint(size);
  }

 private:
  char* p_;
};

}  // namespace processor

#endif  // PROCESSOR_CODEC_WIRE_H_
