// SPDX-License-Identifier: Apache-2.0
#include "src/codec/values.h"

#include <algorithm>

#include "tensorflow/core/framework/bfloat16.h"

namespace processor {
namespace {

using tensorflow::Tensor;
using tensorflow::tstring;

WireType ElementType(const ValueLayout& layout) {
  switch (layout.encoding) {
    case ValueEncoding::kFixed:
      return layout.scalar_bytes == 4 ? WireType::kFixed32 : WireType::kFixed64;
    case ValueEncoding::kHalfFloat:
    case ValueEncoding::kBfloat16Float:
      return WireType::kFixed32;
    case ValueEncoding::kBytes:
      return WireType::kBytes;
    default:
      return WireType::kVarint;
  }
}

/// Whether a field holds values of the layout: packed, or one of them.
bool IsValue(const ValueLayout& layout, const WireField& field) {
  return field.number == layout.field && (field.type == WireType::kBytes || field.type == ElementType(layout));
}

/// Calls `visit(payload)` for every packed run and every single value of the layout's field; the encoding of one value
/// is a run of length one. Stops and returns false as soon as `visit` does.
template <typename Visit>
bool ForEachRun(const ValueLayout& layout, const ValueFields& fields, Visit&& visit) {
  if (fields.count == 0) return true;
  if (fields.count == 1) return !IsValue(layout, fields.last) || visit(fields.last.payload);
  WireReader reader(fields.span);
  WireField field;
  while (!reader.done()) {
    if (!reader.Next(&field)) return false;
    if (IsValue(layout, field) && !visit(field.payload)) return false;
  }
  return true;
}

/// Number of varints in a run, -1 if the last one is cut off.
int64_t CountVarints(std::string_view run) {
  if (run.empty()) return 0;
  if (static_cast<uint8_t>(run.back()) >= 0x80) return -1;
  int64_t count = 0;
  for (const char byte : run) count += static_cast<int8_t>(byte) >= 0;
  return count;
}

template <typename T, typename Convert>
bool ReadVarints(std::string_view run, int64_t limit, T* dst, int64_t* done, Convert convert) {
  WireReader reader(run);
  uint64_t value;
  T* p = dst + *done;
  T* const end = dst + limit;
  while (p != end && !reader.done()) {
    if (!reader.ReadVarint(&value)) return false;
    *p++ = convert(value);
  }
  *done = p - dst;
  return true;
}

template <typename T>
void FloatsTo(std::string_view run, int64_t count, T* dst) {
  for (int64_t i = 0; i < count; ++i) {
    float value;
    std::memcpy(&value, run.data() + 4 * i, 4);
    dst[i] = static_cast<T>(value);
  }
}

/// Runs of scalars that have `kWidth` bytes each on the wire.
template <size_t kWidth, typename Copy>
bool ReadFixedRuns(const ValueLayout& layout, const ValueFields& fields, int64_t limit, Copy&& copy) {
  int64_t done = 0;
  return ForEachRun(layout, fields, [&](std::string_view run) {
    const int64_t count = std::min<int64_t>(static_cast<int64_t>(run.size() / kWidth), limit - done);
    copy(run, done, count);
    done += count;
    return true;
  });
}

template <size_t kWidth>
bool ReadMemory(const ValueLayout& layout, const ValueFields& fields, int64_t limit, char* dst) {
  return ReadFixedRuns<kWidth>(layout, fields, limit, [dst](std::string_view run, int64_t done, int64_t count) {
    if (count > 0) std::memcpy(dst + kWidth * done, run.data(), kWidth * count);
  });
}

template <size_t kWidth>
int64_t CountFixed(const ValueLayout& layout, const ValueFields& fields) {
  int64_t total = 0;
  const bool ok = ForEachRun(layout, fields, [&total](std::string_view run) {
    total += static_cast<int64_t>(run.size() / kWidth);
    return run.size() % kWidth == 0;
  });
  return ok ? total : -1;
}

template <typename T>
bool ReadVarintRuns(const ValueLayout& layout, const ValueFields& fields, int64_t limit, void* dst) {
  int64_t done = 0;
  return ForEachRun(layout, fields, [&](std::string_view run) {
    return ReadVarints(run, limit, static_cast<T*>(dst), &done, [](uint64_t value) { return static_cast<T>(value); });
  });
}

template <typename T>
size_t VarintsSize(const Tensor& tensor) {
  const T* src = static_cast<const T*>(tensor.data());
  const int64_t count = tensor.NumElements();
  size_t size = 0;
  // A negative number is sign-extended to 64 bits, as protobuf wants it of int32 too.
  for (int64_t i = 0; i < count; ++i) size += VarintSize(static_cast<uint64_t>(static_cast<int64_t>(src[i])));
  return size;
}

template <typename T>
void WriteVarints(const Tensor& tensor, WireWriter* writer) {
  const T* src = static_cast<const T*>(tensor.data());
  const int64_t count = tensor.NumElements();
  for (int64_t i = 0; i < count; ++i) writer->Varint(static_cast<uint64_t>(static_cast<int64_t>(src[i])));
}

template <typename T>
void WriteAsFloats(const Tensor& tensor, WireWriter* writer) {
  const T* src = static_cast<const T*>(tensor.data());
  const int64_t count = tensor.NumElements();
  for (int64_t i = 0; i < count; ++i) {
    const float value = static_cast<float>(src[i]);
    writer->Raw(&value, sizeof(value));
  }
}

/// Calls `call` with a value of the integer type that the layout has in tensor memory.
template <typename Call>
auto WithInteger(const ValueLayout& layout, Call&& call) {
  if (layout.encoding == ValueEncoding::kSigned) {
    switch (layout.scalar_bytes) {
      case 1:
        return call(int8_t{});
      case 2:
        return call(int16_t{});
      case 4:
        return call(int32_t{});
      default:
        return call(int64_t{});
    }
  }
  switch (layout.scalar_bytes) {
    case 1:
      return call(uint8_t{});
    case 2:
      return call(uint16_t{});
    case 4:
      return call(uint32_t{});
    default:
      return call(uint64_t{});
  }
}

const tstring* Strings(const Tensor& tensor) { return static_cast<const tstring*>(tensor.data()); }
tstring* Strings(Tensor* tensor) { return static_cast<tstring*>(tensor->data()); }

}  // namespace

int64_t CountScalars(const ValueLayout& layout, const ValueFields& fields) {
  int64_t total = 0;
  bool ok = false;
  switch (ElementType(layout)) {
    case WireType::kFixed32:
      return CountFixed<4>(layout, fields);
    case WireType::kFixed64:
      return CountFixed<8>(layout, fields);
    case WireType::kBytes:
      if (fields.uniform) return IsValue(layout, fields.last) ? fields.count : 0;
      ok = ForEachRun(layout, fields, [&](std::string_view) { return ++total, true; });
      break;
    default:
      ok = ForEachRun(layout, fields, [&](std::string_view run) {
        const int64_t count = CountVarints(run);
        total += count;
        return count >= 0;
      });
  }
  return ok ? total : -1;
}

bool ReadScalars(const ValueLayout& layout, const ValueFields& fields, int64_t limit, Tensor* dst) {
  if (limit == 0) return true;
  char* const base = static_cast<char*>(dst->data());
  switch (layout.encoding) {
    case ValueEncoding::kFixed:
      if (layout.scalar_bytes == 4) return ReadMemory<4>(layout, fields, limit, base);
      return ReadMemory<8>(layout, fields, limit, base);
    case ValueEncoding::kHalfFloat:
      return ReadFixedRuns<4>(layout, fields, limit, [&](std::string_view run, int64_t done, int64_t count) {
        FloatsTo(run, count, reinterpret_cast<Eigen::half*>(base) + done);
      });
    case ValueEncoding::kBfloat16Float:
      return ReadFixedRuns<4>(layout, fields, limit, [&](std::string_view run, int64_t done, int64_t count) {
        FloatsTo(run, count, reinterpret_cast<tensorflow::bfloat16*>(base) + done);
      });
    case ValueEncoding::kSigned:
    case ValueEncoding::kUnsigned:
      return WithInteger(layout,
                         [&](auto integer) { return ReadVarintRuns<decltype(integer)>(layout, fields, limit, base); });
    case ValueEncoding::kBool: {
      int64_t done = 0;
      return ForEachRun(layout, fields, [&](std::string_view run) {
        return ReadVarints(run, limit, reinterpret_cast<bool*>(base), &done, [](uint64_t value) { return value != 0; });
      });
    }
    case ValueEncoding::kBytes: {
      // Strings beyond 22 bytes get memory from TensorFlow's malloc, which is not checked. That is left so: together they
      // take little more than the request, which its host holds already, and repeats of the last one have a limit of
      // their own; and there is no way to hand a tstring memory that was asked for here.
      tstring* p = Strings(dst);
      tstring* const end = p + limit;
      return ForEachRun(layout, fields, [&](std::string_view run) {
        if (p != end) (p++)->assign(run.data(), run.size());
        return true;
      });
    }
    case ValueEncoding::kNone:
      break;
  }
  return false;
}

bool ReadContent(std::string_view content, Tensor* dst) {
  if (content.empty()) return true;
  std::memcpy(dst->data(), content.data(), content.size());
  return dst->dtype() != tensorflow::DT_BOOL ||
         std::all_of(content.begin(), content.end(), [](char byte) { return byte == 0 || byte == 1; });
}

void RepeatLast(const ValueLayout& layout, int64_t begin, Tensor* dst) {
  const int64_t count = dst->NumElements();
  if (begin >= count) return;
  if (layout.encoding == ValueEncoding::kBytes) {
    if (begin == 0) return;  // made empty
    tstring* const strings = Strings(dst);
    for (int64_t i = begin; i < count; ++i) strings[i] = strings[begin - 1];
    return;
  }
  char* const base = static_cast<char*>(dst->data());
  const size_t element = layout.element_bytes();
  if (begin == 0) {
    std::memset(base, 0, element * count);
    return;
  }
  const char* const last = base + element * (begin - 1);
  for (int64_t i = begin; i < count; ++i) std::memcpy(base + element * i, last, element);
}

size_t ValuesSize(const ValueLayout& layout, const Tensor& tensor) {
  const size_t count = static_cast<size_t>(tensor.NumElements());
  switch (layout.encoding) {
    case ValueEncoding::kFixed:
      return count * layout.element_bytes();
    case ValueEncoding::kHalfFloat:
    case ValueEncoding::kBfloat16Float:
      return count * sizeof(float);
    case ValueEncoding::kBool:
      return count;
    case ValueEncoding::kSigned:
    case ValueEncoding::kUnsigned:
      return WithInteger(layout, [&](auto integer) { return VarintsSize<decltype(integer)>(tensor); });
    case ValueEncoding::kBytes: {
      const tstring* strings = count == 0 ? nullptr : Strings(tensor);
      size_t size = 0;
      for (size_t i = 0; i < count; ++i) size += BytesFieldSize(layout.field, strings[i].size());
      return size;
    }
    case ValueEncoding::kNone:
      break;
  }
  return 0;
}

void WriteValues(const ValueLayout& layout, const Tensor& tensor, size_t values_size, WireWriter* writer) {
  if (values_size == 0) return;
  if (layout.encoding == ValueEncoding::kBytes) {
    const tstring* strings = Strings(tensor);
    for (int64_t i = 0; i < tensor.NumElements(); ++i) {
      writer->BytesField(layout.field, std::string_view(strings[i].data(), strings[i].size()));
    }
    return;
  }
  writer->BytesHeader(layout.field, values_size);
  switch (layout.encoding) {
    case ValueEncoding::kFixed:
    case ValueEncoding::kBool:
      writer->Raw(tensor.data(), values_size);
      break;
    case ValueEncoding::kHalfFloat:
      WriteAsFloats<Eigen::half>(tensor, writer);
      break;
    case ValueEncoding::kBfloat16Float:
      WriteAsFloats<tensorflow::bfloat16>(tensor, writer);
      break;
    default:
      WithInteger(layout, [&](auto integer) { WriteVarints<decltype(integer)>(tensor, writer); });
  }
}

}  // namespace processor
