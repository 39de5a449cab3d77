// SPDX-License-Identifier: Apache-2.0
// Protocol "eas": the messages of protos/predict.proto.
#include <array>

#include "absl/strings/str_cat.h"
#include "src/codec/predict_codec.h"
#include "src/codec/protocols.h"

namespace processor {
namespace {

using tensorflow::DataType;

constexpr ValueLayout FloatValues(ValueEncoding encoding, uint8_t bytes, uint8_t scalars = 1) {
  return {encoding, 3, bytes, scalars, "float_val"};
}
constexpr ValueLayout Doubles(uint8_t scalars) { return {ValueEncoding::kFixed, 4, 8, scalars, "double_val"}; }
constexpr ValueLayout Signed(uint8_t bytes) { return {ValueEncoding::kSigned, 5, bytes, 1, "int_val"}; }
constexpr ValueLayout Unsigned(uint8_t bytes) { return {ValueEncoding::kUnsigned, 5, bytes, 1, "int_val"}; }

constexpr std::array<ValueLayout, 20> EasLayouts() {
  std::array<ValueLayout, 20> layouts{};
  layouts[tensorflow::DT_FLOAT] = FloatValues(ValueEncoding::kFixed, 4);
  layouts[tensorflow::DT_COMPLEX64] = FloatValues(ValueEncoding::kFixed, 4, 2);
  layouts[tensorflow::DT_HALF] = FloatValues(ValueEncoding::kHalfFloat, 2);
  layouts[tensorflow::DT_BFLOAT16] = FloatValues(ValueEncoding::kBfloat16Float, 2);
  layouts[tensorflow::DT_DOUBLE] = Doubles(1);
  layouts[tensorflow::DT_COMPLEX128] = Doubles(2);
  layouts[tensorflow::DT_INT32] = Signed(4);
  layouts[tensorflow::DT_INT16] = Signed(2);
  layouts[tensorflow::DT_INT8] = Signed(1);
  layouts[tensorflow::DT_QINT32] = Signed(4);
  layouts[tensorflow::DT_QINT16] = Signed(2);
  layouts[tensorflow::DT_QINT8] = Signed(1);
  layouts[tensorflow::DT_UINT16] = Unsigned(2);
  layouts[tensorflow::DT_UINT8] = Unsigned(1);
  layouts[tensorflow::DT_QUINT16] = Unsigned(2);
  layouts[tensorflow::DT_QUINT8] = Unsigned(1);
  layouts[tensorflow::DT_STRING] = {ValueEncoding::kBytes, 6, sizeof(tensorflow::tstring), 1, "string_val"};
  layouts[tensorflow::DT_INT64] = {ValueEncoding::kSigned, 7, 8, 1, "int64_val"};
  layouts[tensorflow::DT_BOOL] = {ValueEncoding::kBool, 8, 1, 1, "bool_val"};
  return layouts;
}

struct EasProtocol {
  static constexpr const char* kName = "eas";
  static constexpr absl::StatusCode kUnknownSignature = absl::StatusCode::kNotFound;
  static constexpr OutputRule kOutputRule = {};
  static constexpr uint32_t kFirstValueField = 3;
  static constexpr uint32_t kLastValueField = 8;

  static const ValueLayout& Layout(DataType dtype) {
    static constexpr std::array<ValueLayout, 20> kLayouts = EasLayouts();
    const auto i = static_cast<size_t>(dtype);
    return kLayouts[i < kLayouts.size() ? i : 0];
  }

  /// The head is the signature's name itself.
  static bool ReadHead(const Heads& heads, DecodedRequest*, std::string_view* signature_name) {
    if (!heads.empty()) *signature_name = heads.back();
    return true;
  }

  static bool ReadTensorField(const WireField& field, EncodedTensor* dst) {
    if (field.number != PredictFields::kTensorShape || field.type != WireType::kBytes) return true;
    return ReadDims(field.payload, &dst->dims);
  }

  /// ArrayShape: the numbers of dimension, packed or one by one.
  static bool ReadDims(std::string_view message, Dims* dims) {
    WireReader reader(message);
    WireField field;
    while (!reader.done()) {
      if (!reader.Next(&field)) return false;
      if (field.number != 1 || (field.type != WireType::kBytes && field.type != WireType::kVarint)) continue;
      WireReader values(field.payload);
      uint64_t value;
      while (!values.done()) {
        if (!values.ReadVarint(&value)) return false;
        AddDim(static_cast<int64_t>(value), dims);
      }
    }
    return true;
  }

  /// There must be exactly the values that the shape wants: a tensor is never larger than its message justifies.
  static absl::Status ReadValues(const TensorSpec& spec, const EncodedTensor& encoded,
                                 const tensorflow::TensorShape& shape, const ValueLayout& layout, FeedArena* arena,
                                 tensorflow::Tensor* dst) {
    const int64_t scalars = CountScalars(layout, encoded.values);
    if (scalars < 0) return MalformedInput(spec);
    const bool pairs = layout.scalars_per_element == 2;
    if ((pairs && scalars % 2 != 0) || (pairs ? scalars / 2 : scalars) != shape.num_elements()) {
      return absl::InvalidArgumentError(absl::StrCat("input '", spec.alias, "': ", scalars, " values in ",
                                                     layout.field_name, ", expected ", shape.num_elements(),
                                                     pairs ? " pairs" : "", " for shape ", shape.DebugString()));
    }
    const size_t text = layout.encoding == ValueEncoding::kBytes ? encoded.values.span.size() : 0;
    absl::Status status = MakeInput(spec, shape, layout.element_bytes(), text, arena, dst);
    if (!status.ok()) return status;
    return ReadScalars(layout, encoded.values, scalars, dst) ? absl::OkStatus() : MalformedInput(spec);
  }

  static size_t DimsSize(const tensorflow::TensorShape& shape) {
    size_t size = 0;
    for (int i = 0; i < shape.dims(); ++i) size += VarintSize(static_cast<uint64_t>(shape.dim_size(i)));
    return size;
  }

  static size_t ShapeSize(const tensorflow::TensorShape& shape) {
    return shape.dims() == 0 ? 0 : BytesFieldSize(1, DimsSize(shape));
  }

  static void WriteShape(const tensorflow::TensorShape& shape, WireWriter* writer) {
    if (shape.dims() == 0) return;
    writer->BytesHeader(1, DimsSize(shape));
    for (int i = 0; i < shape.dims(); ++i) writer->Varint(static_cast<uint64_t>(shape.dim_size(i)));
  }

  static size_t TailSize(const DecodedRequest&, const ResponseContext&) { return 0; }
  static void WriteTail(const DecodedRequest&, const ResponseContext&, WireWriter*) {}
};

}  // namespace

const Codec* EasCodec() {
  static const PredictCodec<EasProtocol> codec;
  return &codec;
}

}  // namespace processor
