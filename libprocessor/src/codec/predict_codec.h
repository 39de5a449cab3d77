// SPDX-License-Identifier: Apache-2.0
// What the predict messages of "eas" and "tfserving" have in common: a request of head, map of inputs and output filter,
// and a response of map of outputs and tail. `Protocol` describes head, tail and tensor message:
//
//   static constexpr const char* kName;
//   static constexpr absl::StatusCode kUnknownSignature;
//   static constexpr OutputRule kOutputRule;                                   // of the output filter
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

#include <algorithm>
#include <cstdint>
#include <forward_list>
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

/// Large enough for the inputs of most models without allocating.
using Heads = absl::InlinedVector<std::string_view, 2>;
using Payloads = absl::InlinedVector<std::string_view, 64>;
using Dims = absl::InlinedVector<int64_t, 8>;

/// Adds a dimension that a client sent. It keeps at most one more than a tensor can have, because such a shape is refused.
inline void AddDim(int64_t size, Dims* dims) {
  if (dims->size() <= static_cast<size_t>(tensorflow::TensorShape::MaxDimensions())) dims->push_back(size);
}

/// The most inputs and output names of a request. The limit is needed because an empty entry takes more memory than its
/// two bytes.
constexpr size_t kMaxEntries = 65536;

/// The fields of one tensor message, whose values are not read yet.
struct EncodedTensor {
  int32_t dtype = 0;
  Dims dims;
  std::string_view content;
  ValueFields values;
};

/// Field numbers that are the same in both protocols.
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

/// Allocates memory for a response. \return RESOURCE_EXHAUSTED if there is none or it exceeds the 2 GiB of a message.
absl::Status MakeRoom(size_t size, Buffer* dst);

/// Turns dimensions that a client sent into a shape. \return INVALID_ARGUMENT if no tensor can have it.
absl::Status BuildShape(const TensorSpec& spec, const Dims& dims, tensorflow::TensorShape* dst);

/// Makes the tensor of an input as FeedArena::Make() does. `text`: bytes of its strings.
absl::Status MakeInput(const TensorSpec& spec, const tensorflow::TensorShape& shape, size_t element_bytes, size_t text,
                       FeedArena* arena, tensorflow::Tensor* dst);

/// Finds the signature of a request. \return `unknown` if the model has none of that name.
absl::Status SelectSignature(const SignatureSet& signatures, std::string_view name, DecodedRequest* dst,
                             absl::StatusCode unknown = absl::StatusCode::kNotFound);

/// How a protocol treats the outputs that a request names.
struct OutputRule {
  absl::StatusCode unknown = absl::StatusCode::kNotFound;
  /// Whether an output that is named twice is refused, with INVALID_ARGUMENT.
  bool once = false;
};

/// Completes a request as FinishRequest() (codec.h) does, by the rule of a protocol.
absl::Status FinishRequestBy(const OutputRule& rule, absl::Span<const bool> seen,
                             absl::Span<const std::string_view> output_keys, DecodedRequest* dst);

/// A field whose message may occur in several parts, which the wire format joins.
class JoinedField {
 public:
  /// `memory` will own the joined bytes if there are several parts.
  explicit JoinedField(std::forward_list<std::string>* memory) : memory_(memory) {}

  void Add(std::string_view part) {
    if (bytes_.empty()) {
      bytes_ = part;
      return;
    }
    if (joined_ == nullptr) joined_ = &memory_->emplace_front(bytes_);
    joined_->append(part);
    bytes_ = *joined_;
  }

  std::string_view bytes() const { return bytes_; }

 private:
  std::forward_list<std::string>* memory_;
  std::string* joined_ = nullptr;
  std::string_view bytes_;
};

/// One input as the request names it.
struct NamedInput {
  std::string_view key;
  std::string_view message;
};

/// Finds the position of an input and stores its message there; of equal keys, the last one counts.
absl::Status PlaceInput(const Signature& signature, const NamedInput& input, SeenInputs* seen,
                        absl::InlinedVector<NamedInput, 64>* inputs);

/// One tensor of a map, whose sizes are computed before it is written.
template <typename Protocol>
class MapEntry {
 public:
  /// Computes the sizes. `field`: number of the map in its message. `kind`: "input" or "output", for error messages.
  absl::Status Measure(uint32_t field, std::string_view kind, std::string_view key, const tensorflow::Tensor& tensor) {
    field_ = field;
    key_ = key;
    tensor_ = &tensor;
    layout_ = &Protocol::Layout(tensor.dtype());
    if (layout_->encoding == ValueEncoding::kNone) return NotInProtocol(kind, key, tensor.dtype(), Protocol::kName);
    shape_ = Protocol::ShapeSize(tensor.shape());
    values_ = ValuesSize(*layout_, tensor);
    message_ = TagSize(PredictFields::kTensorDtype) + VarintSize(tensor.dtype()) +
               BytesFieldSize(PredictFields::kTensorShape, shape_) + ValueFieldsSize(*layout_, values_);
    entry_ = BytesFieldSize(PredictFields::kMapKey, key.size()) + BytesFieldSize(PredictFields::kMapValue, message_);
    return absl::OkStatus();
  }

  /// Returns the size of the field with its tag.
  size_t size() const { return BytesFieldSize(field_, entry_); }

  void Write(WireWriter* writer) const {
    writer->BytesHeader(field_, entry_);
    writer->BytesField(PredictFields::kMapKey, key_);
    writer->BytesHeader(PredictFields::kMapValue, message_);
    writer->VarintField(PredictFields::kTensorDtype, tensor_->dtype());
    writer->BytesHeader(PredictFields::kTensorShape, shape_);
    Protocol::WriteShape(tensor_->shape(), writer);
    WriteValues(*layout_, *tensor_, values_, writer);
  }

 private:
  uint32_t field_ = 0;
  std::string_view key_;
  const tensorflow::Tensor* tensor_ = nullptr;
  const ValueLayout* layout_ = nullptr;
  // Sizes from the inside out.
  size_t shape_ = 0, values_ = 0, message_ = 0, entry_ = 0;
};

/// Returns the name of output i of a response.
inline std::string_view OutputKey(const DecodedRequest& request, size_t i) {
  if (!request.fetch_keys.empty()) return request.fetch_keys[i];
  return request.signature->outputs()[request.fetches[i]].alias;
}

/// The codec of a predict method.
template <typename Protocol>
class PredictCodec final : public Codec {
 public:
  absl::Status Decode(std::string_view bytes, const SignatureSet& signatures, const RequestOptions& options,
                      DecodedRequest* dst) const override {
    Heads heads;
    Payloads entries;
    OutputKeys output_keys;
    // The signature may come after the inputs, so the top level is walked before any input is read.
    if (!Scan(bytes, &heads, &entries, &output_keys)) return Malformed("request", "PredictRequest");
    if (std::max(entries.size(), output_keys.size()) > kMaxEntries) {
      return absl::InvalidArgumentError(
          absl::StrCat("request: too many inputs or outputs, expected at most ", kMaxEntries));
    }
    dst->Clear();
    std::string_view signature_name;
    if (!Protocol::ReadHead(heads, dst, &signature_name)) return Malformed("model_spec", "ModelSpec");
    if (!options.signature.empty()) signature_name = options.signature;
    absl::Status found = SelectSignature(signatures, signature_name, dst, Protocol::kUnknownSignature);
    if (!found.ok()) return found;

    const Signature& signature = *dst->signature;
    const size_t count = signature.inputs().size();
    SeenInputs seen(count);
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
    return FinishRequestBy(Protocol::kOutputRule, seen, output_keys, dst);
  }

  absl::Status Encode(const DecodedRequest& request, const std::vector<tensorflow::Tensor>& outputs,
                      const ResponseContext& context, Response* dst) const override {
    absl::InlinedVector<MapEntry<Protocol>, 8> entries(outputs.size());
    size_t total = Protocol::TailSize(request, context);
    for (size_t i = 0; i < outputs.size(); ++i) {
      absl::Status status =
          entries[i].Measure(PredictFields::kResponseOutputs, "output", OutputKey(request, i), outputs[i]);
      if (!status.ok()) return status;
      total += entries[i].size();
    }
    if (absl::Status status = MakeRoom(total, &dst->body); !status.ok()) return status;
    WireWriter writer(dst->body.data());
    for (const auto& entry : entries) entry.Write(&writer);
    Protocol::WriteTail(request, context, &writer);
    return absl::OkStatus();
  }

 private:
  static absl::Status Malformed(std::string_view what, std::string_view expected) {
    return absl::InvalidArgumentError(absl::StrCat(what, ": malformed or truncated bytes, expected a ", expected,
                                                   " of protocol '", Protocol::kName, "'"));
  }

  static bool Scan(std::string_view bytes, Heads* heads, Payloads* entries, OutputKeys* output_keys) {
    WireReader reader(bytes);
    WireField field;
    while (!reader.done()) {
      if (!reader.Next(&field)) return false;
      if (field.type != WireType::kBytes) continue;
      if (field.number == PredictFields::kRequestHead) heads->push_back(field.payload);
      if (std::max(entries->size(), output_keys->size()) > kMaxEntries) continue;  // they are refused
      if (field.number == PredictFields::kRequestInputs) entries->push_back(field.payload);
      if (field.number == PredictFields::kRequestOutputFilter) output_keys->push_back(field.payload);
    }
    return true;
  }

  /// Reads one entry of the map. A value that occurs twice is merged by joining the bytes, as protobuf's own reader does,
  /// although no known client sends it.
  static bool ReadEntry(std::string_view entry, NamedInput* dst, std::forward_list<std::string>* merged) {
    WireReader reader(entry);
    WireField field;
    JoinedField message(merged);
    while (!reader.done()) {
      if (!reader.Next(&field)) return false;
      if (field.type != WireType::kBytes) continue;
      if (field.number == PredictFields::kMapKey) dst->key = field.payload;
      if (field.number == PredictFields::kMapValue) message.Add(field.payload);
    }
    dst->message = message.bytes();
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
};

}  // namespace processor

#endif  // PROCESSOR_CODEC_PREDICT_CODEC_H_
