// SPDX-License-Identifier: Apache-2.0
// Protocol "tfserving": TensorFlow Serving's PredictRequest and PredictResponse, with TensorFlow's TensorProto.
#include <algorithm>
#include <array>

#include "absl/strings/str_cat.h"
#include "src/codec/predict_codec.h"
#include "src/codec/prediction_log.h"
#include "src/codec/protocols.h"
#include "src/codec/tfserving_spec.h"

namespace processor {
namespace {

using tensorflow::DataType;

constexpr ValueLayout IntValues(ValueEncoding encoding, uint8_t bytes) { return {encoding, 7, bytes, 1, "int_val"}; }
constexpr ValueLayout HalfBits() { return {ValueEncoding::kUnsigned, 13, 2, 1, "half_val"}; }

constexpr std::array<ValueLayout, 24> TfservingLayouts() {
  std::array<ValueLayout, 24> layouts{};
  layouts[tensorflow::DT_FLOAT] = {ValueEncoding::kFixed, 5, 4, 1, "float_val"};
  layouts[tensorflow::DT_DOUBLE] = {ValueEncoding::kFixed, 6, 8, 1, "double_val"};
  layouts[tensorflow::DT_INT32] = IntValues(ValueEncoding::kSigned, 4);
  layouts[tensorflow::DT_INT16] = IntValues(ValueEncoding::kSigned, 2);
  layouts[tensorflow::DT_INT8] = IntValues(ValueEncoding::kSigned, 1);
  layouts[tensorflow::DT_QINT32] = IntValues(ValueEncoding::kSigned, 4);
  layouts[tensorflow::DT_QINT16] = IntValues(ValueEncoding::kSigned, 2);
  layouts[tensorflow::DT_QINT8] = IntValues(ValueEncoding::kSigned, 1);
  layouts[tensorflow::DT_UINT16] = IntValues(ValueEncoding::kUnsigned, 2);
  layouts[tensorflow::DT_UINT8] = IntValues(ValueEncoding::kUnsigned, 1);
  layouts[tensorflow::DT_QUINT16] = IntValues(ValueEncoding::kUnsigned, 2);
  layouts[tensorflow::DT_QUINT8] = IntValues(ValueEncoding::kUnsigned, 1);
  layouts[tensorflow::DT_STRING] = {ValueEncoding::kBytes, 8, sizeof(tensorflow::tstring), 1, "string_val"};
  layouts[tensorflow::DT_COMPLEX64] = {ValueEncoding::kFixed, 9, 4, 2, "scomplex_val"};
  layouts[tensorflow::DT_INT64] = {ValueEncoding::kSigned, 10, 8, 1, "int64_val"};
  layouts[tensorflow::DT_BOOL] = {ValueEncoding::kBool, 11, 1, 1, "bool_val"};
  layouts[tensorflow::DT_COMPLEX128] = {ValueEncoding::kFixed, 12, 8, 2, "dcomplex_val"};
  layouts[tensorflow::DT_HALF] = HalfBits();
  layouts[tensorflow::DT_BFLOAT16] = HalfBits();
  layouts[tensorflow::DT_UINT32] = {ValueEncoding::kUnsigned, 16, 4, 1, "uint32_val"};
  layouts[tensorflow::DT_UINT64] = {ValueEncoding::kUnsigned, 17, 8, 1, "uint64_val"};
  return layouts;
}

constexpr uint32_t kResponseModelSpec = 2;

/// Field numbers of TensorProto and TensorShapeProto.
constexpr uint32_t kTensorContent = 4;
constexpr uint32_t kShapeDim = 2;
constexpr uint32_t kDimSize = 1;

struct TfServingProtocol {
  static constexpr const char* kName = "tfserving";
  // As TensorFlow Serving answers.
  static constexpr absl::StatusCode kUnknownSignature = absl::StatusCode::kFailedPrecondition;
  static constexpr OutputRule kOutputRule = {absl::StatusCode::kInvalidArgument, /*once=*/true};
  static constexpr uint32_t kFirstValueField = 5;
  static constexpr uint32_t kLastValueField = 17;

  static const ValueLayout& Layout(DataType dtype) {
    static constexpr std::array<ValueLayout, 24> kLayouts = TfservingLayouts();
    const auto i = static_cast<size_t>(dtype);
    return kLayouts[i < kLayouts.size() ? i : 0];
  }

  static bool ReadHead(const Heads& heads, DecodedRequest* dst, std::string_view* signature_name) {
    ModelSpecView spec;
    if (!std::all_of(heads.begin(), heads.end(), [&](std::string_view head) { return ReadModelSpec(head, &spec); })) {
      return false;
    }
    SetModel(spec, dst);
    *signature_name = spec.signature;
    return true;
  }

  static bool ReadTensorField(const WireField& field, EncodedTensor* dst) {
    if (field.number == PredictFields::kTensorShape) {
      return field.type != WireType::kBytes || ReadShape(field.payload, dst);
    }
    if (field.number == kTensorContent && field.type == WireType::kBytes) dst->content = field.payload;
    return true;
  }

  /// TensorShapeProto. Like TensorFlow, takes the dimensions and ignores `unknown_rank`: a tensor has a rank.
  static bool ReadShape(std::string_view message, EncodedTensor* dst) {
    return ForEachField(message, [dst](const WireField& field) {
      if (field.number != kShapeDim || field.type != WireType::kBytes) return true;
      int64_t size = 0;
      const bool ok = ForEachField(field.payload, [&size](const WireField& inner) {
        if (inner.number == kDimSize && inner.type == WireType::kVarint) {
          size = static_cast<int64_t>(FirstVarint(inner.payload));
        }
        return true;
      });
      if (ok) AddDim(size, &dst->dims);
      return ok;
    });
  }

  /// TensorFlow's rules: tensor_content wins over the typed values; of those, too many are cut off and too few repeat
  /// the last one, or are zero if there is none.
  static absl::Status ReadValues(const TensorSpec& spec, const EncodedTensor& encoded,
                                 const tensorflow::TensorShape& shape, const ValueLayout& layout, FeedArena* arena,
                                 tensorflow::Tensor* dst) {
    const int64_t elements = shape.num_elements();
    if (!encoded.content.empty() && elements > 0) {
      return ReadTensorContent(spec, encoded, shape, layout, arena, dst);
    }
    const int64_t scalars = CountScalars(layout, encoded.values);
    if (scalars < 0) return MalformedInput(spec);
    const int64_t given = std::min(layout.scalars_per_element == 2 ? scalars / 2 : scalars, elements);
    // A list of values that is too short means that its last one is repeated, which lets a small message ask for much.
    const auto too_large = [&] {
      return absl::InvalidArgumentError(absl::StrCat(
          "input '", spec.alias, "': ", given, " values in ", layout.field_name, " for shape ", shape.DebugString(),
          ", expected all values if a request repeats more than ", FeedArena::kMostRepeated >> 20, " MiB"));
    };
    const auto repeated = static_cast<size_t>(elements - given);
    if (!arena->Repeat(repeated, layout.element_bytes())) return too_large();
    const size_t text = layout.encoding == ValueEncoding::kBytes ? encoded.values.span.size() : 0;
    absl::Status status = MakeInput(spec, shape, layout.element_bytes(), text, arena, dst);
    if (!status.ok()) return status;
    if (!ReadScalars(layout, encoded.values, given * layout.scalars_per_element, dst)) return MalformedInput(spec);
    if (repeated == 0) return absl::OkStatus();
    // A repeated string takes its bytes each time, beyond what the tensor itself has.
    const size_t bytes_each = LastStringBytes(layout, given, *dst);
    if (!arena->Repeat(repeated, bytes_each)) return too_large();
    if (status = arena->Extend(repeated * bytes_each); !status.ok()) return status;
    RepeatLast(layout, given, dst);
    return absl::OkStatus();
  }

  static size_t LastStringBytes(const ValueLayout& layout, int64_t given, const tensorflow::Tensor& tensor) {
    if (layout.encoding != ValueEncoding::kBytes || given == 0) return 0;
    return static_cast<const tensorflow::tstring*>(tensor.data())[given - 1].size();
  }

  static absl::Status ReadTensorContent(const TensorSpec& spec, const EncodedTensor& encoded,
                                        const tensorflow::TensorShape& shape, const ValueLayout& layout,
                                        FeedArena* arena, tensorflow::Tensor* dst) {
    if (layout.encoding == ValueEncoding::kBytes) {
      return absl::InvalidArgumentError(
          absl::StrCat("input '", spec.alias, "': tensor_content of DT_STRING, expected string_val"));
    }
    const size_t width = layout.element_bytes();
    const size_t given = encoded.content.size() / width;
    if (encoded.content.size() % width != 0 || given != static_cast<size_t>(shape.num_elements())) {
      return absl::InvalidArgumentError(absl::StrCat("input '", spec.alias, "': tensor_content of ",
                                                     encoded.content.size(), " bytes, expected ", shape.num_elements(),
                                                     " values of ", width, " bytes for shape ", shape.DebugString()));
    }
    absl::Status status = MakeInput(spec, shape, layout.element_bytes(), 0, arena, dst);
    if (!status.ok()) return status;
    if (ReadContent(encoded.content, dst)) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("input '", spec.alias, "': tensor_content of DT_BOOL with other bytes, expected 0 and 1"));
  }

  static size_t DimMessageSize(int64_t dim) {
    return dim == 0 ? 0 : TagSize(kDimSize) + VarintSize(static_cast<uint64_t>(dim));
  }

  static size_t ShapeSize(const tensorflow::TensorShape& shape) {
    size_t size = 0;
    for (int i = 0; i < shape.dims(); ++i) size += BytesFieldSize(kShapeDim, DimMessageSize(shape.dim_size(i)));
    return size;
  }

  static void WriteShape(const tensorflow::TensorShape& shape, WireWriter* writer) {
    for (int i = 0; i < shape.dims(); ++i) {
      const int64_t dim = shape.dim_size(i);
      writer->BytesHeader(kShapeDim, DimMessageSize(dim));
      if (dim != 0) writer->VarintField(kDimSize, static_cast<uint64_t>(dim));
    }
  }

  static size_t TailSize(const DecodedRequest& request, const ResponseContext& context) {
    return BytesFieldSize(kResponseModelSpec, ModelSpecSize(AnswerSpec(request, context)));
  }

  static void WriteTail(const DecodedRequest& request, const ResponseContext& context, WireWriter* writer) {
    const ModelSpecView spec = AnswerSpec(request, context);
    writer->BytesHeader(kResponseModelSpec, ModelSpecSize(spec));
    WriteModelSpec(spec, writer);
  }
};

}  // namespace

absl::Status EncodePredictRequest(const DecodedRequest& request, std::string_view model_name, Buffer* dst) {
  ModelSpecView spec;
  spec.name = model_name;
  spec.signature = request.signature->name();
  size_t total = BytesFieldSize(PredictFields::kRequestHead, ModelSpecSize(spec));
  absl::InlinedVector<MapEntry<TfServingProtocol>, 64> inputs(request.feeds.size());
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string& alias = request.signature->inputs()[i].alias;
    absl::Status status = inputs[i].Measure(PredictFields::kRequestInputs, "input", alias, request.feeds[i]);
    if (!status.ok()) return status;
    total += inputs[i].size();
  }
  for (size_t i = 0; i < request.fetches.size(); ++i) {
    total += BytesFieldSize(PredictFields::kRequestOutputFilter, OutputKey(request, i).size());
  }
  if (absl::Status status = MakeRoom(total, dst); !status.ok()) return status;
  WireWriter writer(dst->data());
  writer.BytesHeader(PredictFields::kRequestHead, ModelSpecSize(spec));
  WriteModelSpec(spec, &writer);
  for (const auto& input : inputs) input.Write(&writer);
  for (size_t i = 0; i < request.fetches.size(); ++i) {
    writer.BytesField(PredictFields::kRequestOutputFilter, OutputKey(request, i));
  }
  return absl::OkStatus();
}

absl::Status EncodePredictResponse(const DecodedRequest& request, const std::vector<tensorflow::Tensor>& outputs,
                                   const ResponseContext& context, Buffer* dst) {
  // Those of request.next have signatures of their own.
  const std::vector<tensorflow::Tensor> own(outputs.begin(), outputs.begin() + request.fetches.size());
  Response response;
  absl::Status status = TfServingCodec()->Encode(request, own, context, &response);
  *dst = std::move(response.body);
  return status;
}

const Codec* TfServingCodec() {
  static const PredictCodec<TfServingProtocol> codec;
  return &codec;
}

}  // namespace processor
