// SPDX-License-Identifier: Apache-2.0
// What decoding a request and encoding a response cost, by our reader and by generated protobuf code.
//
//   bench_codec [--filter TEXT] [--rounds N] [--round-ms MS]     JSON on stdout, a table on stderr
//
// The request is that of a Wide & Deep model: 13 float and 26 string inputs of [rows]; the response is one float output
// of [rows, 1]. Every case checks first that both ways give the same tensors, or messages that parse to the same.
// Rounds alternate between the cases, so that a change of the machine's speed hits all of them; medians are printed.
#include <google/protobuf/arena.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <functional>
#include <memory>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "codec_requests.h"
#include "nlohmann/json.hpp"
#include "oracle.h"
#include "program.h"
#include "src/codec/protocols.h"
#include "tensorflow/c/c_api.h"
#include "timing.h"

namespace processor::bench {
namespace {

using tensorflow::Tensor;
using tensorflow::TensorShape;

constexpr int kFloatInputs = 13;
constexpr int kStringInputs = 26;

struct Case {
  std::string name;  // protocol/rows/action/way
  int64_t rows;
  size_t bytes;
  std::function<void()> run;
  std::vector<double> ns = {};  // of one run, one for each round
};

std::string CaseName(const std::string& protocol, int64_t rows, const std::string& way) {
  return protocol + "/" + std::to_string(rows) + "/" + way;
}

void Require(bool condition, const char* what) {
  if (!condition) throw std::runtime_error(std::string("wrong answer: ") + what);
}

std::unique_ptr<SignatureSet> MakeSignatures() {
  std::vector<oracle::Spec> inputs;
  for (int i = 1; i <= kFloatInputs; ++i) inputs.push_back({"I" + std::to_string(i), tensorflow::DT_FLOAT, {-1}});
  for (int i = 1; i <= kStringInputs; ++i) inputs.push_back({"C" + std::to_string(i), tensorflow::DT_STRING, {-1}});
  return oracle::MakeSignatures("serving_default", inputs, {{"prob", tensorflow::DT_FLOAT, {-1, 1}}});
}

/// `numbers`: floats that JSON has, of a few digits as clients send them, instead of any bits.
std::vector<Tensor> MakeInputs(const Signature& signature, int rows, bool numbers) {
  std::vector<Tensor> tensors;
  for (const TensorSpec& spec : signature.inputs()) {
    TensorShape shape({rows});
    if (spec.shape.dims() == 2) shape.AddDim(spec.shape.dim_size(1));
    Tensor tensor = oracle::RandomTensor(spec.dtype, shape, tensors.size() + 1);
    for (int64_t i = 0; i < tensor.NumElements(); ++i) {
      const uint32_t number =
          static_cast<uint32_t>(i + 1) * 40503u + static_cast<uint32_t>(tensors.size()) * 2654435761u;
      if (spec.dtype == tensorflow::DT_STRING) {
        // Ids as click logs have them: 8 characters.
        char text[16];
        std::snprintf(text, sizeof(text), "%08x", number);
        tensor.flat<tensorflow::tstring>()(i) = text;
      } else if (spec.dtype == tensorflow::DT_INT64) {
        tensor.flat<int64_t>()(i) = number % 1000000;
      } else if (numbers) {
        tensor.flat<float>()(i) = static_cast<float>(number % 100000) / 1000;
      }
    }
    tensors.push_back(tensor);
  }
  return tensors;
}

struct Eas {
  static constexpr const char* kName = "eas";
  using Request = tensorflow::eas::PredictRequest;
  using Response = tensorflow::eas::PredictResponse;

  static std::string_view SignatureName(const Request& request) { return request.signature_name(); }
  static void SetSpec(const DecodedRequest&, Response*) {}

  static bool ReadInput(const tensorflow::eas::ArrayProto& src, const TensorSpec& spec, Tensor* dst) {
    if (static_cast<int>(src.dtype()) != static_cast<int>(spec.dtype)) return false;
    TensorShape shape;
    const auto& dims = src.array_shape().dim();
    if (!TensorShape::BuildTensorShape(absl::MakeConstSpan(dims.data(), dims.size()), &shape).ok()) return false;
    if (!spec.shape.IsCompatibleWith(shape)) return false;
    *dst = Tensor(spec.dtype, shape);
    if (spec.dtype == tensorflow::DT_FLOAT) {
      if (src.float_val_size() != shape.num_elements()) return false;
      std::copy_n(src.float_val().data(), src.float_val_size(), dst->flat<float>().data());
      return true;
    }
    if (src.string_val_size() != shape.num_elements()) return false;
    auto* strings = dst->flat<tensorflow::tstring>().data();
    for (int i = 0; i < src.string_val_size(); ++i) strings[i] = src.string_val(i);
    return true;
  }

  static void WriteOutput(const Tensor& src, tensorflow::eas::ArrayProto* dst) {
    dst->set_dtype(tensorflow::eas::DT_FLOAT);
    for (int i = 0; i < src.dims(); ++i) dst->mutable_array_shape()->add_dim(src.dim_size(i));
    dst->mutable_float_val()->Add(src.flat<float>().data(), src.flat<float>().data() + src.NumElements());
  }
};

struct TfServing {
  static constexpr const char* kName = "tfserving";
  using Request = tensorflow::serving::PredictRequest;
  using Response = tensorflow::serving::PredictResponse;

  static std::string_view SignatureName(const Request& request) { return request.model_spec().signature_name(); }
  static void SetSpec(const DecodedRequest& request, Response* response) {
    response->mutable_model_spec()->set_name(std::string(request.model_name));
    response->mutable_model_spec()->mutable_version()->set_value(3);
    response->mutable_model_spec()->set_signature_name(request.signature->name());
  }

  static bool ReadInput(const tensorflow::TensorProto& src, const TensorSpec& spec, Tensor* dst) {
    return src.dtype() == spec.dtype && dst->FromProto(src) && spec.shape.IsCompatibleWith(dst->shape());
  }

  static void WriteOutput(const Tensor& src, tensorflow::TensorProto* dst) { src.AsProtoField(dst); }
};

/// The same work as Codec::Decode, with generated code on an arena.
template <typename Protocol>
bool DecodeGenerated(const std::string& bytes, const SignatureSet& signatures, DecodedRequest* dst) {
  google::protobuf::Arena arena;
  auto* request = google::protobuf::Arena::Create<typename Protocol::Request>(&arena);
  if (!request->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) return false;
  *dst = DecodedRequest();
  dst->signature = signatures.Find(Protocol::SignatureName(*request));
  if (dst->signature == nullptr) return false;
  const auto& specs = dst->signature->inputs();
  absl::InlinedVector<bool, 64> seen(specs.size());
  dst->feeds.resize(specs.size());
  for (const auto& [key, message] : request->inputs()) {
    const int position = dst->signature->FindInput(key);
    if (position < 0 || !Protocol::ReadInput(message, specs[position], &dst->feeds[position])) return false;
    seen[position] = true;
  }
  return FinishRequest(seen, {}, dst).ok();
}

template <typename Protocol>
bool EncodeGenerated(const DecodedRequest& request, const std::vector<Tensor>& outputs, Buffer* dst) {
  google::protobuf::Arena arena;
  auto* response = google::protobuf::Arena::Create<typename Protocol::Response>(&arena);
  for (size_t i = 0; i < outputs.size(); ++i) {
    const std::string& alias = request.signature->outputs()[request.fetches[i]].alias;
    Protocol::WriteOutput(outputs[i], &(*response->mutable_outputs())[alias]);
  }
  Protocol::SetSpec(request, response);
  const size_t size = response->ByteSizeLong();
  return dst->Allocate(size) && response->SerializeToArray(dst->data(), static_cast<int>(size));
}

template <typename Protocol>
void SetModelName(typename Protocol::Request*) {}
template <>
void SetModelName<TfServing>(TfServing::Request* request) {
  request->mutable_model_spec()->set_name("wdl");
}

template <typename Protocol>
void AddCases(const SignatureSet& signatures, int rows, std::vector<Case>* cases) {
  const Signature& signature = *signatures.default_signature();
  const Codec* codec = FindCodec(Protocol::kName);
  const std::vector<Tensor> inputs = MakeInputs(signature, rows, /*numbers=*/false);
  typename Protocol::Request message;
  SetModelName<Protocol>(&message);
  for (size_t i = 0; i < inputs.size(); ++i) {
    oracle::ToMessage(inputs[i], &(*message.mutable_inputs())[signature.inputs()[i].alias]);
  }
  // Lives until the program ends, as the cases do.
  const auto* bytes = new std::string(message.SerializeAsString());
  const auto* outputs = new std::vector<Tensor>{oracle::RandomTensor(tensorflow::DT_FLOAT, TensorShape({rows, 1}), 7)};
  auto* request = new DecodedRequest();
  const ResponseContext context{3};

  Require(DecodeGenerated<Protocol>(*bytes, signatures, request), "generated decode");
  for (size_t i = 0; i < inputs.size(); ++i) Require(oracle::Same(inputs[i], request->feeds[i]), "feeds");
  Require(codec->Decode(*bytes, signatures, {}, request).ok(), "decode");
  for (size_t i = 0; i < inputs.size(); ++i) Require(oracle::Same(inputs[i], request->feeds[i]), "feeds");
  Response ours;
  Buffer theirs;
  Require(codec->Encode(*request, *outputs, context, &ours).ok(), "encode");
  Require(EncodeGenerated<Protocol>(*request, *outputs, &theirs), "generated encode");
  typename Protocol::Response a, b;
  Require(a.ParseFromArray(ours.body.data(), static_cast<int>(ours.body.size())), "parse");
  Require(b.ParseFromArray(theirs.data(), static_cast<int>(theirs.size())), "parse generated");
  Require(a.SerializeAsString() == b.SerializeAsString(), "responses differ");

  const SignatureSet* all = &signatures;
  cases->push_back({CaseName(Protocol::kName, rows, "decode/own"), rows, bytes->size(), [=] {
                      DecodedRequest decoded;
                      if (!codec->Decode(*bytes, *all, {}, &decoded).ok()) std::abort();
                    }});
  cases->push_back({CaseName(Protocol::kName, rows, "decode/generated"), rows, bytes->size(), [=] {
                      DecodedRequest decoded;
                      if (!DecodeGenerated<Protocol>(*bytes, *all, &decoded)) std::abort();
                    }});
  cases->push_back({CaseName(Protocol::kName, rows, "encode/own"), rows, ours.body.size(), [=] {
                      Response response;
                      if (!codec->Encode(*request, *outputs, context, &response).ok()) std::abort();
                    }});
  cases->push_back({CaseName(Protocol::kName, rows, "encode/generated"), rows, ours.body.size(), [=] {
                      Buffer buffer;
                      if (!EncodeGenerated<Protocol>(*request, *outputs, &buffer)) std::abort();
                    }});
}

/// The protocols that are read by our codecs alone, with the request's form in the place of `way`.
void AddOwnCases(const SignatureSet& signatures, const std::vector<Tensor>& inputs, const char* suffix,
                 std::vector<Case>* cases) {
  const int64_t rows = inputs[0].dim_size(0);
  const auto* outputs = new std::vector<Tensor>{oracle::RandomTensor(tensorflow::DT_FLOAT, TensorShape({rows, 1}), 7)};
  const SignatureSet* all = &signatures;
  for (const CodecRequest& made : MakeCodecRequests(*signatures.default_signature(), inputs)) {
    const auto* message = new CodecRequest(made);
    const Codec* codec = FindCodec(message->protocol);
    auto* request = new DecodedRequest();
    const RequestOptions options{"", message->header_length};
    Require(codec->Decode(message->bytes, signatures, options, request).ok(), "decode");
    for (size_t i = 0; i < inputs.size(); ++i) Require(oracle::Same(inputs[i], request->feeds[i]), "feeds");
    Response response;
    Require(codec->Encode(*request, *outputs, {3, "wdl"}, &response).ok(), "encode");
    const std::string protocol = std::string(message->protocol) + suffix, way = std::string("/") + message->way;
    cases->push_back({CaseName(protocol, rows, "decode" + way), rows, message->bytes.size(), [=] {
                        DecodedRequest decoded;
                        if (!codec->Decode(message->bytes, *all, options, &decoded).ok()) std::abort();
                      }});
    cases->push_back({CaseName(protocol, rows, "encode" + way), rows, response.body.size(), [=] {
                        Response answer;
                        if (!codec->Encode(*request, *outputs, {3, "wdl"}, &answer).ok()) std::abort();
                      }});
  }
}

/// A model of few inputs: what its one-row requests cost shows what is the same for every request.
std::unique_ptr<SignatureSet> MakeSmallSignatures() {
  std::vector<oracle::Spec> inputs = {{"dense", tensorflow::DT_FLOAT, {-1, kFloatInputs}}};
  for (int i = 1; i <= kStringInputs; ++i) inputs.push_back({"C" + std::to_string(i), tensorflow::DT_INT64, {-1}});
  return oracle::MakeSignatures("serving_default", inputs, {{"prob", tensorflow::DT_FLOAT, {-1, 1}}});
}

double ThreadSeconds() {
  timespec time;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

/// CPU time of one run [ns]. Nothing here waits, so it is what the clock on the wall shows on a machine of one's own.
double RunFor(const std::function<void()>& run, double milliseconds) {
  const double start = ThreadSeconds();
  int64_t count = 0;
  double now = start;
  while (now - start < milliseconds / 1e3) {
    for (int i = 0; i < 64; ++i) run();
    count += 64;
    now = ThreadSeconds();
  }
  return (now - start) * 1e9 / static_cast<double>(count);
}

std::string CpuModel() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.rfind("model name", 0) == 0) return line.substr(line.find(':') + 2);
  }
  return "unknown";
}

Report MeasureCodecs(const Arguments& arguments) {
  const size_t rounds = arguments.Count("--rounds");
  const double round_ms = arguments.Number("--round-ms");
  // They live until the program ends, as the cases do.
  const SignatureSet& signatures = *MakeSignatures().release();
  const SignatureSet& small_signatures = *MakeSmallSignatures().release();
  std::vector<Case> cases;
  for (const int rows : {1, 128}) {
    AddCases<Eas>(signatures, rows, &cases);
    AddCases<TfServing>(signatures, rows, &cases);
    AddOwnCases(signatures, MakeInputs(*signatures.default_signature(), rows, /*numbers=*/true), "", &cases);
    AddOwnCases(small_signatures, MakeInputs(*small_signatures.default_signature(), rows, /*numbers=*/true), ":ids",
                &cases);
  }
  const std::string& filter = arguments.Text("--filter");
  const auto unwanted = [&](const Case& codec_case) { return codec_case.name.find(filter) == std::string::npos; };
  cases.erase(std::remove_if(cases.begin(), cases.end(), unwanted), cases.end());
  for (Case& codec_case : cases) RunFor(codec_case.run, round_ms);  // warm caches and allocator
  TakeTurns(rounds, &cases, [&](Case* codec_case) { codec_case->ns.push_back(RunFor(codec_case->run, round_ms)); });

  Report measured = Report::array();
  for (Case& codec_case : cases) {
    std::sort(codec_case.ns.begin(), codec_case.ns.end());
    const double median = Percentile(codec_case.ns, 0.5);
    measured.push_back({{"name", codec_case.name},
                        {"rows", codec_case.rows},
                        {"bytes", codec_case.bytes},
                        {"median_ns", std::round(median)},
                        {"min_ns", std::round(codec_case.ns.front())},
                        {"max_ns", std::round(codec_case.ns.back())}});
    std::fprintf(stderr, "%-32s %8zu bytes %10.0f ns\n", codec_case.name.c_str(), codec_case.bytes, median);
  }
  return {{"benchmark", "codec"},
          {"cpu", CpuModel()},
          {"compiler", std::string("g++ ") + __VERSION__},
          {"tensorflow", TF_Version()},
          {"protobuf", GOOGLE_PROTOBUF_VERSION},
          {"rounds", rounds},
          {"clock", "thread cpu"},
          {"cases", std::move(measured)}};
}

}  // namespace

const Program kProgram = {{{"--filter", ""}, {"--rounds", "9"}, {"--round-ms", "50"}}, MeasureCodecs};

}  // namespace processor::bench
