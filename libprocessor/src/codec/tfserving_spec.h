// SPDX-License-Identifier: Apache-2.0
// Reads and writes TensorFlow Serving's ModelSpec, which all its messages have. Any thread may call these functions.
#ifndef PROCESSOR_CODEC_TFSERVING_SPEC_H_
#define PROCESSOR_CODEC_TFSERVING_SPEC_H_

#include "src/codec/codec.h"
#include "src/codec/model_spec.h"
#include "src/codec/wire.h"

namespace processor {

namespace spec_fields {

constexpr uint32_t kName = 1;
constexpr uint32_t kVersion = 2;
constexpr uint32_t kSignatureName = 3;
constexpr uint32_t kVersionLabel = 4;
constexpr uint32_t kWrappedValue = 1;  // of Int64Value

}  // namespace spec_fields

/// Reads the value of an Int64Value. Returns false for malformed bytes.
inline bool ReadInt64Value(std::string_view message, int64_t* value) {
  return ForEachField(message, [value](const WireField& field) {
    if (field.number == spec_fields::kWrappedValue && field.type == WireType::kVarint) {
      *value = static_cast<int64_t>(FirstVarint(field.payload));
    }
    return true;
  });
}

/// Merges a ModelSpec into `dst`. Version and label exclude each other: the last one counts. Returns false for malformed
/// bytes.
inline bool ReadModelSpec(std::string_view message, ModelSpecView* dst) {
  return ForEachField(message, [dst](const WireField& field) {
    if (field.type != WireType::kBytes) return true;
    switch (field.number) {
      case spec_fields::kName:
        dst->name = field.payload;
        return true;
      case spec_fields::kVersion: {
        int64_t version = dst->version.value_or(0);
        if (!ReadInt64Value(field.payload, &version)) return false;
        dst->version = version;
        dst->label = {};
        return true;
      }
      case spec_fields::kSignatureName:
        dst->signature = field.payload;
        return true;
      case spec_fields::kVersionLabel:
        dst->label = field.payload;
        dst->version.reset();
        return true;
      default:
        return true;
    }
  });
}

/// Copies the model of a request.
inline void SetModel(const ModelSpecView& spec, DecodedRequest* dst) {
  dst->model_name = spec.name;
  dst->model_version = spec.version;
  dst->version_label = spec.label;
}

/// Returns the ModelSpec of a response.
inline ModelSpecView AnswerSpec(const DecodedRequest& request, const ResponseContext& context) {
  const std::string_view name = request.model_name.empty() ? context.model_name : request.model_name;
  return {name, context.model_version, {}, request.signature->name()};
}

inline size_t Int64ValueSize(int64_t value) {
  return value == 0 ? 0 : TagSize(spec_fields::kWrappedValue) + VarintSize(static_cast<uint64_t>(value));
}

/// Returns the size of what WriteModelSpec() writes: name, version and signature. Only requests have labels.
inline size_t ModelSpecSize(const ModelSpecView& spec) {
  size_t size = 0;
  if (!spec.name.empty()) size += BytesFieldSize(spec_fields::kName, spec.name.size());
  if (spec.version) size += BytesFieldSize(spec_fields::kVersion, Int64ValueSize(*spec.version));
  if (!spec.signature.empty()) size += BytesFieldSize(spec_fields::kSignatureName, spec.signature.size());
  return size;
}

inline void WriteModelSpec(const ModelSpecView& spec, WireWriter* writer) {
  if (!spec.name.empty()) writer->BytesField(spec_fields::kName, spec.name);
  if (spec.version) {
    writer->BytesHeader(spec_fields::kVersion, Int64ValueSize(*spec.version));
    if (*spec.version != 0) writer->VarintField(spec_fields::kWrappedValue, static_cast<uint64_t>(*spec.version));
  }
  if (!spec.signature.empty()) writer->BytesField(spec_fields::kSignatureName, spec.signature);
}

}  // namespace processor

#endif  // PROCESSOR_CODEC_TFSERVING_SPEC_H_
