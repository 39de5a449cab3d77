// SPDX-License-Identifier: Apache-2.0
#include "differential.h"

#include <algorithm>
#include <map>

#include "absl/log/globals.h"
#include "kserve_oracle.h"
#include "oracle.h"
#include "src/codec/wire.h"

namespace processor::oracle {
namespace {

using tensorflow::DataType;
using tensorflow::Tensor;
using tensorflow::TensorProto;
using tensorflow::TensorShape;
using tensorflow::eas::ArrayProto;

// Beside those below for the other protocols.
using processor::oracle::CompareAnswer;
using processor::oracle::Wanted;

constexpr int64_t kMaxRepeatedBytes = int64_t{64} << 20;

std::string NameOf(DataType dtype) { return tensorflow::DataType_Name(dtype); }

const std::string& SignatureName(const tensorflow::eas::PredictRequest& request) { return request.signature_name(); }
const std::string& SignatureName(const tensorflow::serving::PredictRequest& request) {
  return request.model_spec().signature_name();
}

/// Whether an output that is named twice is an error.
bool OutputsOnce(const tensorflow::eas::PredictRequest&) { return false; }
bool OutputsOnce(const tensorflow::serving::PredictRequest&) { return true; }

/// Whether TensorFlow would make a tensor out of less than the shape wants, and one larger than we allow so.
bool RepeatsTooMuch(const TensorProto& message, const TensorShape& shape) {
  if (!message.tensor_content().empty()) return false;
  const int64_t elements = shape.num_elements();
  int64_t given = 0, bytes = tensorflow::DataTypeSize(message.dtype()), last = 0;
  switch (message.dtype()) {
    case tensorflow::DT_FLOAT:
      given = message.float_val_size();
      break;
    case tensorflow::DT_DOUBLE:
      given = message.double_val_size();
      break;
    case tensorflow::DT_STRING:
      given = message.string_val_size();
      bytes = sizeof(tensorflow::tstring);
      if (given > 0) last = static_cast<int64_t>(message.string_val(static_cast<int>(given) - 1).size());
      break;
    case tensorflow::DT_COMPLEX64:
      given = message.scomplex_val_size() / 2;
      break;
    case tensorflow::DT_COMPLEX128:
      given = message.dcomplex_val_size() / 2;
      break;
    case tensorflow::DT_INT64:
      given = message.int64_val_size();
      break;
    case tensorflow::DT_BOOL:
      given = message.bool_val_size();
      break;
    case tensorflow::DT_HALF:
    case tensorflow::DT_BFLOAT16:
      given = message.half_val_size();
      break;
    case tensorflow::DT_UINT32:
      given = message.uint32_val_size();
      break;
    case tensorflow::DT_UINT64:
      given = message.uint64_val_size();
      break;
    default:
      given = message.int_val_size();
  }
  if (given >= elements) return false;
  return elements - given > kMaxRepeatedBytes / (bytes + last);
}

bool Wanted(const TensorProto& message, DataType dtype, Tensor* dst) {
  TensorShape shape;
  if (message.dtype() != dtype || !TensorShape::IsValid(message.tensor_shape())) return false;
  if (!TensorShape::BuildTensorShape(message.tensor_shape(), &shape).ok() || RepeatsTooMuch(message, shape))
    return false;
  // TensorFlow allocates before it compares sizes; ask for no memory that will not be filled.
  const int64_t width = std::max(1, tensorflow::DataTypeSize(dtype));
  if (!message.tensor_content().empty() && shape.num_elements() > 0 && dtype != tensorflow::DT_STRING &&
      static_cast<int64_t>(message.tensor_content().size()) / width != shape.num_elements()) {
    return false;
  }
  return ToTensor(message, dtype, dst);
}

bool Wanted(const ArrayProto& message, DataType dtype, Tensor* dst) { return ToTensor(message, dtype, dst); }

/// What generated code makes of a request: whether it is right, and its tensors.
template <typename Request>
bool Wanted(const Request& request, const SignatureSet& signatures, const Signature** found, std::vector<Tensor>* feeds,
            std::vector<int>* fetches) {
  *found = signatures.Find(SignatureName(request));
  if (*found == nullptr) return false;
  const Signature* signature = *found;
  std::vector<int> seen(signature->inputs().size());
  feeds->assign(seen.size(), Tensor());
  for (const auto& [key, message] : request.inputs()) {
    const int i = signature->FindInput(key);
    if (i < 0 || ++seen[i] > 1) return false;
    const TensorSpec& spec = signature->inputs()[i];
    if (!Wanted(message, spec.dtype, &(*feeds)[i]) || !spec.shape.IsCompatibleWith((*feeds)[i].shape())) return false;
    const TensorShape& shape = (*feeds)[i].shape();
    if (spec.open_rows && shape.dims() > 0 && shape.dim_size(0) > spec.max_rows) return false;
  }
  if (std::count(seen.begin(), seen.end(), 0) > 0) return false;
  return WantedFetches(*signature, {request.output_filter().begin(), request.output_filter().end()},
                       OutputsOnce(request), fetches);
}

/// As in kserve_oracle.h.
template <typename Response>
std::string CompareOutputs(const DecodedRequest& request, const std::string& body) {
  Response response;
  if (!response.ParseFromString(body)) return "response: cannot be parsed";
  const std::string key(request.fetch_keys.empty() ? "x" : request.fetch_keys[0]);
  Tensor back;
  if (response.outputs_size() != 1 || response.outputs().count(key) != 1) return "response: other outputs";
  if (!ToTensor(response.outputs().at(key), request.feeds[0].dtype(), &back)) return "response: not the dtype";
  return Same(back, request.feeds[0]) ? "" : "response: other values";
}
std::string CompareAnswer(const tensorflow::eas::PredictRequest&, const DecodedRequest& request,
                          const std::string& body) {
  return CompareOutputs<tensorflow::eas::PredictResponse>(request, body);
}
std::string CompareAnswer(const tensorflow::serving::PredictRequest&, const DecodedRequest& request,
                          const std::string& body) {
  return CompareOutputs<tensorflow::serving::PredictResponse>(request, body);
}

template <typename Request>
std::string CompareAs(const Codec& codec, std::string_view bytes, const SignatureSet& signatures) {
  // Exactly as large as the bytes, so that a read beyond the end is seen by a checker of memory.
  const auto copy = std::make_unique<char[]>(bytes.size());
  std::copy(bytes.begin(), bytes.end(), copy.get());
  DecodedRequest decoded;
  const absl::Status status = codec.Decode({copy.get(), bytes.size()}, signatures, {}, &decoded);
  if (!status.ok() && status.message().empty()) return "an error without words";
  if (status.ok() && decoded.fetches.empty()) return "nothing to fetch";

  Request request;
  const Signature* signature = nullptr;
  std::vector<Tensor> feeds;
  std::vector<int> fetches;
  if (!request.ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return "";
  if (Wanted(request, signatures, &signature, &feeds, &fetches) != status.ok()) {
    return "accepted by one alone; ours says: " + status.ToString();
  }
  if (!status.ok()) return "";
  if (decoded.signature != signature) return "another signature";
  if (decoded.fetches != fetches) return "other fetches";
  if (decoded.feeds.size() != feeds.size()) return "other number of feeds";
  for (size_t i = 0; i < feeds.size(); ++i) {
    if (!Same(decoded.feeds[i], feeds[i])) return "feed " + signature->inputs()[i].alias + " differs";
  }
  if (feeds.size() != 1) return "";
  // The input of a signature of one dtype is its output, which generated code reads back.
  Response encoded;
  const absl::Status answered = codec.Encode(decoded, {decoded.feeds[0]}, {7, "other"}, &encoded);
  if (!answered.ok()) return "response: " + answered.ToString();
  return CompareAnswer(request, decoded, std::string(encoded.body.data(), encoded.body.size()));
}

TensorShape RandomShape(std::mt19937_64* random) {
  TensorShape shape;
  const int rank = static_cast<int>((*random)() % 4);
  for (int i = 0; i < rank; ++i) shape.AddDim(static_cast<int64_t>((*random)() % 6));
  return shape;
}

void SetSignature(const std::string& name, tensorflow::eas::PredictRequest* request) {
  request->set_signature_name(name);
}
void SetSignature(const std::string& name, tensorflow::serving::PredictRequest* request) {
  request->mutable_model_spec()->set_name("model");
  request->mutable_model_spec()->set_signature_name(name);
}

void MaybeUseContent(const Tensor&, std::mt19937_64*, ArrayProto*) {}
void MaybeUseContent(const Tensor& tensor, std::mt19937_64* random, TensorProto* message) {
  if (tensor.dtype() == tensorflow::DT_STRING || (*random)() % 2 != 0) return;
  message->Clear();
  tensor.AsProtoTensorContent(message);
}

template <typename Request>
std::string RandomRequestAs(std::string_view protocol, std::mt19937_64* random) {
  Request request;
  const auto set = [&](const std::string& key, DataType dtype, const TensorShape& shape) {
    const Tensor tensor = RandomTensor(dtype, shape, (*random)());
    ToMessage(tensor, &(*request.mutable_inputs())[key]);
    MaybeUseContent(tensor, random, &(*request.mutable_inputs())[key]);
  };
  if ((*random)() % 4 == 0) {
    const auto rows = static_cast<int64_t>((*random)() % 4);
    set("dense", tensorflow::DT_FLOAT, TensorShape({rows, 3}));
    set((*random)() % 2 == 0 ? "id" : "wide_id:0", tensorflow::DT_INT64, TensorShape({rows}));
    set("tag", tensorflow::DT_STRING, TensorShape({rows, 2}));
    if ((*random)() % 2 == 0) request.add_output_filter("prob");
  } else {
    const std::vector<DataType> dtypes = DtypesOf(protocol);
    const DataType dtype = dtypes[(*random)() % dtypes.size()];
    SetSignature(NameOf(dtype), &request);
    set("x", dtype, RandomShape(random));
    if ((*random)() % 2 == 0) request.add_output_filter("x");
  }
  return request.SerializeAsString();
}

/// One field with its bytes, tag included.
struct RawField {
  WireField field;
  std::string bytes;
};

std::vector<RawField> Split(std::string_view message) {
  std::vector<RawField> fields;
  WireReader reader(message);
  while (!reader.done()) {
    const char* begin = reader.position();
    WireField field;
    if (!reader.Next(&field)) std::abort();  // only ever valid messages come here
    fields.push_back({field, std::string(begin, reader.position())});
  }
  return fields;
}

std::string BytesField(uint32_t number, std::string_view content) {
  std::string field(BytesFieldSize(number, content.size()), '\0');
  WireWriter(field.data()).BytesField(number, content);
  return field;
}

/// Joins fields in any order, those of one number in the order they have, with unknown fields in between.
std::string Shuffle(const std::vector<RawField>& fields, std::mt19937_64* random) {
  std::map<uint32_t, std::vector<const std::string*>> by_number;
  std::vector<uint32_t> numbers;
  for (const RawField& field : fields) {
    by_number[field.field.number].push_back(&field.bytes);
    numbers.push_back(field.field.number);
  }
  std::shuffle(numbers.begin(), numbers.end(), *random);
  std::map<uint32_t, size_t> next;
  std::string joined;
  for (const uint32_t number : numbers) {
    if ((*random)() % 4 == 0) joined += BytesField(900 + (*random)() % 20, "unknown");
    joined += *by_number[number][next[number]++];
  }
  return joined;
}

/// The wire type of one value of a numeric field; kBytes if the field is no packed number.
WireType ElementType(std::string_view protocol, uint32_t number) {
  static const std::map<uint32_t, WireType> eas = {{3, WireType::kFixed32},
                                                   {4, WireType::kFixed64},
                                                   {5, WireType::kVarint},
                                                   {7, WireType::kVarint},
                                                   {8, WireType::kVarint}};
  static const std::map<uint32_t, WireType> tfserving = {
      {5, WireType::kFixed32}, {6, WireType::kFixed64}, {7, WireType::kVarint},   {9, WireType::kFixed32},
      {10, WireType::kVarint}, {11, WireType::kVarint}, {12, WireType::kFixed64}, {13, WireType::kVarint},
      {16, WireType::kVarint}, {17, WireType::kVarint}};
  static const std::map<uint32_t, WireType> kserve = {
      {1, WireType::kVarint}, {2, WireType::kVarint},  {3, WireType::kVarint}, {4, WireType::kVarint},
      {5, WireType::kVarint}, {6, WireType::kFixed32}, {7, WireType::kFixed64}};
  const auto& types = protocol == "eas" ? eas : protocol == "kserve" ? kserve : tfserving;
  const auto found = types.find(number);
  return found == types.end() ? WireType::kBytes : found->second;
}

/// Writes the values of a packed field one by one.
std::string Unpacked(uint32_t number, WireType type, std::string_view run) {
  std::string fields;
  size_t at = 0;
  while (at < run.size()) {
    size_t size = type == WireType::kFixed32 ? 4 : 8;
    if (type == WireType::kVarint) {
      for (size = 1; static_cast<uint8_t>(run[at + size - 1]) >= 0x80;) ++size;
    }
    char tag[8];
    WireWriter writer(tag);
    writer.Tag(number, type);
    fields.append(tag, writer.position()).append(run.substr(at, size));
    at += size;
  }
  return fields;
}

std::string RearrangedTensor(std::string_view protocol, std::string_view message, std::mt19937_64* random) {
  std::vector<RawField> fields = Split(message);
  for (RawField& field : fields) {
    const WireType type = ElementType(protocol, field.field.number);
    if (type == WireType::kBytes || field.field.type != WireType::kBytes || (*random)() % 2 == 0) continue;
    field.bytes = Unpacked(field.field.number, type, field.field.payload);
  }
  return Shuffle(fields, random);
}

/// The same for "kserve", whose tensors lie in a list, and their values one message deeper.
std::string RearrangedKserve(std::string_view bytes, std::mt19937_64* random) {
  constexpr uint32_t kInputs = 5, kShape = 3, kContents = 5;
  std::vector<RawField> request = Split(bytes);
  for (RawField& input : request) {
    if (input.field.number != kInputs) continue;
    std::vector<RawField> fields = Split(input.field.payload);
    for (RawField& field : fields) {
      if (field.field.number == kContents) {
        field.bytes = BytesField(kContents, RearrangedTensor("kserve", field.field.payload, random));
      }
      if (field.field.number == kShape && (*random)() % 2 == 0) {
        field.bytes = Unpacked(kShape, WireType::kVarint, field.field.payload);
      }
    }
    input.bytes = BytesField(kInputs, Shuffle(fields, random));
  }
  return Shuffle(request, random);
}

}  // namespace

std::unique_ptr<SignatureSet> MakeWideSignatures(std::string_view protocol) {
  std::vector<SignatureSpec> specs = {
      {"wide",
       {{"dense", tensorflow::DT_FLOAT, {-1, 3}},
        {"id", tensorflow::DT_INT64, {-1}},
        {"tag", tensorflow::DT_STRING, {-1, 2}}},
       {{"prob", tensorflow::DT_FLOAT, {-1, 1}}, {"rank", tensorflow::DT_INT32, {-1}}}}};
  for (const DataType dtype : DtypesOf(protocol)) {
    specs.push_back({NameOf(dtype), {{"x", dtype, {}, true}}, {{"x", dtype, {}, true}}});
  }
  return MakeSignatures(specs);
}

std::string Compare(std::string_view protocol, std::string_view bytes, const SignatureSet& signatures) {
  // Generated code logs every string that is no UTF-8.
  static const bool quiet = (absl::SetStderrThreshold(absl::LogSeverityAtLeast::kFatal), true);
  (void)quiet;
  const Codec& codec = *FindCodec(protocol);
  if (protocol == "kserve") return CompareAs<inference::ModelInferRequest>(codec, bytes, signatures);
  if (protocol == "eas") return CompareAs<tensorflow::eas::PredictRequest>(codec, bytes, signatures);
  return CompareAs<tensorflow::serving::PredictRequest>(codec, bytes, signatures);
}

std::string RandomRequest(std::string_view protocol, std::mt19937_64* random) {
  if (protocol == "kserve") return RandomKserveRequest(random);
  if (protocol == "eas") return RandomRequestAs<tensorflow::eas::PredictRequest>(protocol, random);
  return RandomRequestAs<tensorflow::serving::PredictRequest>(protocol, random);
}

std::string Rearranged(std::string_view protocol, std::string_view bytes, std::mt19937_64* random) {
  if (protocol == "kserve") return RearrangedKserve(bytes, random);
  std::vector<RawField> request = Split(bytes);
  for (RawField& input : request) {
    if (input.field.number != 2) continue;
    std::vector<RawField> entry = Split(input.field.payload);
    for (RawField& value : entry) {
      if (value.field.number == 2) value.bytes = BytesField(2, RearrangedTensor(protocol, value.field.payload, random));
    }
    input.bytes = BytesField(2, Shuffle(entry, random));
  }
  return Shuffle(request, random);
}

std::string Mutated(std::string_view bytes, std::mt19937_64* random) {
  std::string result(bytes);
  for (int left = 1 + static_cast<int>((*random)() % 4); left > 0 && !result.empty(); --left) {
    const size_t at = (*random)() % result.size();
    const size_t length = std::min<size_t>(1 + (*random)() % 8, result.size() - at);
    switch ((*random)() % 6) {
      case 0:
        result[at] = static_cast<char>((*random)());
        break;
      case 1:
        result[at] = static_cast<char>(result[at] ^ (1 << (*random)() % 8));
        break;
      case 2:
        result.erase(at, length);
        break;
      case 3:
        result.insert(at, result.substr(at, length));
        break;
      case 4:
        result.insert(at, 1, static_cast<char>((*random)()));
        break;
      default:
        result.resize(at);
    }
  }
  return result;
}

}  // namespace processor::oracle
