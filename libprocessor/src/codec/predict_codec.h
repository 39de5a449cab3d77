// SPDX-License-Identifier: Apache-2.0
// What the predict messages of both protocols have in common: a request of (head, map of inputs, output filter), a
// response of (map of outputs, tail). `Protocol` says what a head, a tail and a tensor message look like:
//
//   static constexpr const char* kName;
//   static const ValueLayout& Layout(tensorflow::DataType dtype);
//   static bool ReadHead(const Heads& heads, DecodedRequest* dst, std::string_view* signature_name);
//   static constexpr uint32_t kFirstValueField, kLastValueField;               // of the typed values
//   static bool ReadTensorField(const WireField& field, EncodedTensor* dst);   // neither the dtype nor values
//   static absl::Status ReadValues(const TensorSpec&, const EncodedTensor&, const tensorflow::TensorShape&,
//                                  const ValueLayout&, FeedArena*, tensorflow::Tensor* dst);
//   static size_t ShapeSize(const tensorflow::TensorShape&), void WriteShape(same, WireWriter*);
//   static size_t TailSize(const DecodedRequest&, const ResponseContext&), void WriteTail(same, WireWriter*);
#ifndef PROCESSOR_CODEC_PREDICT_CODEC_H_
#define PROCESSOR_CODEC_PREDICT_CODEC_H_

#include <cstdint>
#include <forward_list>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "src/codec/codec.h"
#include "src/codec/feed_arena.h"
#include "src/codec/message_text.h"
#include "src/codec/values.h"
#include "src/codec/wire.h"

namespace processor {

/// Enough for the inputs of most models without touching the heap.
using Heads = absl::InlinedVector<std::string_view, 2>;
using Payloads = absl::InlinedVector<std::string_view, 64>;
using Dims = absl::InlinedVector<int64_t, 8>;

/// One tensor message, taken apart but not yet read.
struct EncodedTensor {
  int32_t dtype = 0;
  Dims dims;
  std::string_view content;
  ValueFields values;
};

/// Field numbers that both protocols share.
struct PredictFields {
  static constexpr uint32_t kRequestHead = 1;
  static constexpr uint32_t kRequestInputs = 2;
  static constexpr uint32_t kRequestOutputFilter = 3;
  static constexpr uint32_t kResponseOutputs = 1;
  static constexpr uint32_t kMapKey = 1;
  static constexpr uint32_t kMapValue = 2;
  static constexpr uint32_t kTensorDtype = 1;
  static constexpr uint32_t kTensorShape = 2;
};

/// Turns what the client wrote into a shape. INVALID_ARGUMENT if no tensor can have it.
absl::Status BuildShape(const TensorSpec& spec, const Dims& dims, tensorflow::TensorShape* dst);

/// The signature that a request means. NOT_FOUND if the model has none of that name.
absl::Status SelectSignature(const SignatureSet& signatures, std::string_view name, DecodedRequest* dst);

/// One input as the request names it.
struct NamedInput {
  std::string_view key;
  std::string_view message;
};

/// Finds the place of an input and keeps its message there; the last of equal keys stays.
absl::Status PlaceInput(const Signature& signature, const NamedInput& input, std::vector<bool>* seen,
                        absl::InlinedVector<NamedInput, 64>* inputs);

template <typename Protocol>
class PredictCodec final : public Codec {
 public:
  absl::Status Decode(std::string_view bytes, const SignatureSet& signatures, std::string_view signature_override,
                      DecodedRequest* dst) const override {
    Heads heads;
    Payloads entries;
    std::vector<std::string_view> output_keys;
    // The signature may come after the inputs, so the top level is walked before any input is read.
    if (!Scan(bytes, &heads, &entries, &output_keys)) return Malformed("request", "PredictRequest");
    *dst = DecodedRequest();
    std::string_view signature_name;
    if (!Protocol::ReadHead(heads, dst, &signature_name)) return Malformed("model_spec", "ModelSpec");
    if (!signature_override.empty()) signature_name = signature_override;
    if (absl::Status status = SelectSignature(signatures, signature_name, dst); !status.ok()) return status;

    const Signature& signature = *dst->signature;
    const size_t count = signature.inputs().size();
    std::vector<bool> seen(count);
    absl::InlinedVector<NamedInput, 64> inputs(count);
    std::forward_list<std::string> merged;  // memory of values that came in parts
    for (const std::string_view entry : entries) {
      NamedInput input;
      if (!ReadEntry(entry, &input, &merged)) return Malformed("inputs", "map entry");
      if (absl::Status status = PlaceInput(signature, input, &seen, &inputs); !status.ok()) return status;
    }
    FeedArena arena;
    dst->feeds.resize(count);
    for (size_t i = 0; i < count; ++i) {
      if (!seen[i]) continue;  // FinishRequest names what is missing
      absl::Status status = DecodeTensor(signature.inputs()[i], inputs[i].message, &arena, &dst->feeds[i]);
      if (!status.ok()) return status;
    }
    return FinishRequest(seen, output_keys, dst);
  }

  absl::Status Encode(const DecodedRequest& request, const std::vector<tensorflow::Tensor>& outputs,
                      const ResponseContext& context, Buffer* dst) const override {
    absl::InlinedVector<Item, 8> items(outputs.size());
    size_t total = Protocol::TailSize(request, context);
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (absl::Status status = Measure(request, i, outputs[i], &items[i]); !status.ok()) return status;
      total += BytesFieldSize(PredictFields::kResponseOutputs, items[i].entry);
    }
    if (total > static_cast<size_t>(std::numeric_limits<int32_t>::max())) {
      return absl::ResourceExhaustedError(absl::StrCat("response: ", total, " bytes, expected at most 2147483647"));
    }
    if (!dst->Allocate(total))
      return absl::ResourceExhaustedError(absl::StrCat("response: no memory for ", total, " bytes"));
    WireWriter writer(dst->data());
    for (size_t i = 0; i < outputs.size(); ++i) Write(items[i], outputs[i], &writer);
    Protocol::WriteTail(request, context, &writer);
    return absl::OkStatus();
  }

 private:
  /// Sizes of one output's map entry, from the inside out.
  struct Item {
    std::string_view key;
    const ValueLayout* layout;
    size_t shape, values, message, entry;
  };

  static absl::Status Malformed(std::string_view what, std::string_view expected) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": malformed or truncated bytes, expected a ", expected,
                                                   " of protocol '", Protocol::kName, "'"));
  }

  static bool Scan(std::string_view bytes, Heads* heads, Payloads* entries,
                   std::vector<std::string_view>* output_keys) {
    WireReader reader(bytes);
    WireField field;
    while (!reader.done()) {
      if (!reader.Next(&field)) return false;
      if (field.type != WireType::kBytes) continue;
      if (field.number == PredictFields::kRequestInputs) entries->push_back(field.payload);
      if (field.number == PredictFields::kRequestHead) heads->push_back(field.payload);
      if (field.number == PredictFields::kRequestOutputFilter) output_keys->push_back(field.payload);
    }
    return true;
  }

  /// A value that occurs twice in one entry is merged, which in this format is to join the bytes. No real client does
  /// so, but protobuf's own reader gives it that meaning.
  static bool ReadEntry(std::string_view entry, NamedInput* dst, std::forward_list<std::string>* merged) {
    WireReader reader(entry);
    WireField field;
    while (!reader.done()) {
      if (!reader.Next(&field)) return false;
      if (field.type != WireType::kBytes) continue;
      if (field.number == PredictFields::kMapKey) dst->key = field.payload;
      if (field.number != PredictFields::kMapValue) continue;
      if (dst->message.empty()) {
        dst->message = field.payload;
      } else {
        merged->push_front(absl::StrCat(dst->message, field.payload));
        dst->message = merged->front();
      }
    }
    return true;
  }

  static absl::Status DecodeTensor(const TensorSpec& spec, std::string_view message, FeedArena* arena,
                                   tensorflow::Tensor* dst) {
    EncodedTensor encoded;
    WireReader reader(message);
    WireField field;
    while (!reader.done()) {
      const char* const begin = reader.position();
      if (!reader.Next(&field)) return MalformedInput(spec);
      if (field.number >= Protocol::kFirstValueField && field.number <= Protocol::kLastValueField) {
        const int count = 1 + reader.SkipRow(&field);
        encoded.values.Add(field, count, begin, reader.position());
      } else if (field.number == PredictFields::kTensorDtype && field.type == WireType::kVarint) {
        encoded.dtype = static_cast<int32_t>(FirstVarint(field.payload));
      } else if (!Protocol::ReadTensorField(field, &encoded)) {
        return MalformedInput(spec);
      }
    }
    const auto dtype = static_cast<tensorflow::DataType>(encoded.dtype);
    if (absl::Status status = CheckDtype(spec, dtype); !status.ok()) return status;
    const ValueLayout& layout = Protocol::Layout(dtype);
    if (layout.encoding == ValueEncoding::kNone) return NotInProtocol("input", spec.alias, dtype, Protocol::kName);
    tensorflow::TensorShape shape;
    if (absl::Status status = BuildShape(spec, encoded.dims, &shape); !status.ok()) return status;
    if (absl::Status status = CheckShape(spec, shape); !status.ok()) return status;
    return Protocol::ReadValues(spec, encoded, shape, layout, arena, dst);
  }

  static absl::Status Measure(const DecodedRequest& request, size_t i, const tensorflow::Tensor& tensor, Item* item) {
    item->key = request.fetch_keys.empty() ? std::string_view(request.signature->outputs()[request.fetches[i]].alias)
                                           : request.fetch_keys[i];
    item->layout = &Protocol::Layout(tensor.dtype());
    if (item->layout->encoding == ValueEncoding::kNone) {
      return NotInProtocol("output", item->key, tensor.dtype(), Protocol::kName);
    }
    item->shape = Protocol::ShapeSize(tensor.shape());
    item->values = ValuesSize(*item->layout, tensor);
    item->message = TagSize(PredictFields::kTensorDtype) + VarintSize(tensor.dtype()) +
                    BytesFieldSize(PredictFields::kTensorShape, item->shape) +
                    ValueFieldsSize(*item->layout, item->values);
    item->entry = BytesFieldSize(PredictFields::kMapKey, item->key.size()) +
                  BytesFieldSize(PredictFields::kMapValue, item->message);
    return absl::OkStatus();
  }

  static void Write(const Item& item, const tensorflow::Tensor& tensor, WireWriter* writer) {
    writer->BytesHeader(PredictFields::kResponseOutputs, item.entry);
    writer->BytesField(PredictFields::kMapKey, item.key);
    writer->BytesHeader(PredictFields::kMapValue, item.message);
    writer->VarintField(PredictFields::kTensorDtype, tensor.dtype());
    writer->BytesHeader(PredictFields::kTensorShape, item.shape);
    Protocol::WriteShape(tensor.shape(), writer);
    WriteValues(*item.layout, tensor, item.values, writer);
  }
};

}  // namespace processor

#endif  // PROCESSOR_CODEC_PREDICT_CODEC_H_
