// SPDX-License-Identifier: Apache-2.0
// Reads the values of one tensor from the repeated fields of a message, and writes them. Any thread may call these
// functions.
//
// "eas" and "tfserving" encode values in the same way but in different fields; each has a table of `ValueLayout`.
#ifndef PROCESSOR_CODEC_VALUES_H_
#define PROCESSOR_CODEC_VALUES_H_

#include <cstdint>
#include <string_view>

#include "src/codec/wire.h"
#include "tensorflow/core/framework/tensor.h"

namespace processor {

enum class ValueEncoding : uint8_t {
  kNone,           // the protocol has no place for the dtype
  kFixed,          // little-endian as in memory: float, double, and their complex pairs
  kSigned,         // varint of the sign-extended integer
  kUnsigned,       // varint of the integer, or of a bit pattern
  kBool,           // varint, anything but 0 is true
  kHalfFloat,      // half in memory, float on the wire
  kBfloat16Float,  // bfloat16 in memory, float on the wire
  kBytes,          // one length-delimited field for each string
};

/// In which field a protocol has the values of a dtype, and how they are encoded.
struct ValueLayout {
  ValueEncoding encoding = ValueEncoding::kNone;
  uint8_t field = 0;
  uint8_t scalar_bytes = 0;         // of one scalar in tensor memory
  uint8_t scalars_per_element = 1;  // 2 for complex numbers
  const char* field_name = "";

  size_t element_bytes() const { return size_t{scalar_bytes} * scalars_per_element; }
};

/// Where the value fields of one message are. Nearly always they are one packed field or consecutive strings, so that a
/// second search for them is not needed.
struct ValueFields {
  int count = 0;
  bool uniform = true;  // all of the number and type of `last`
  WireField last{};
  std::string_view span;  // from the tag of the first to the end of the last; other fields may be in between

  /// Adds `new_count` fields of one number and type, which reach from `begin` to `end`, tags included; `field` is the last
  /// of them. Must be called in the order of the bytes.
  void Add(const WireField& field, int new_count, const char* begin, const char* end) {
    uniform = uniform && (count == 0 || (field.number == last.number && field.type == last.type));
    if (count != 0) begin = span.data();
    span = std::string_view(begin, static_cast<size_t>(end - begin));
    last = field;
    count += new_count;
  }
};

/// Returns the number of scalars in the fields; -1 if they are malformed.
int64_t CountScalars(const ValueLayout& layout, const ValueFields& fields);

/// Copies the first `limit` scalars into `dst`, which has room for them; `limit` is at most CountScalars().
/// \return false if they are malformed.
bool ReadScalars(const ValueLayout& layout, const ValueFields& fields, int64_t limit, tensorflow::Tensor* dst);

/// Copies raw memory of a numeric dtype. `content` [num_elements * element size], little-endian.
/// \return false if a bool is neither 0 nor 1, because reading such a bool is undefined behavior.
bool ReadContent(std::string_view content, tensorflow::Tensor* dst);

/// Sets the elements from `begin` on to the element before them, or to zero if there is none.
void RepeatLast(const ValueLayout& layout, int64_t begin, tensorflow::Tensor* dst);

/// Returns the size of the values as the content of a packed field; for strings, of all fields with tags and lengths.
size_t ValuesSize(const ValueLayout& layout, const tensorflow::Tensor& tensor);

/// Writes the fields, or nothing if there are no elements; `values_size` comes from ValuesSize().
void WriteValues(const ValueLayout& layout, const tensorflow::Tensor& tensor, size_t values_size, WireWriter* writer);

/// Returns the size of what WriteValues() writes.
inline size_t ValueFieldsSize(const ValueLayout& layout, size_t values_size) {
  if (layout.encoding == ValueEncoding::kBytes || values_size == 0) return values_size;
  return BytesFieldSize(layout.field, values_size);
}

}  // namespace processor

#endif  // PROCESSOR_CODEC_VALUES_H_
