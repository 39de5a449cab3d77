// SPDX-License-Identifier: Apache-2.0
// Protocol "tfserving_json", methods classify and regress.
#include <string>

#include "absl/strings/str_cat.h"
#include "src/codec/example_json.h"
#include "src/codec/examples.h"
#include "src/codec/json_writer.h"
#include "src/codec/predict_codec.h"
#include "src/codec/protocols.h"
#include "src/codec/tfserving_json.h"

namespace processor {
namespace {

using tensorflow::Tensor;

/// The parts of a body. Keys that the server does not know mean nothing to it.
struct ExamplesBody {
  std::string_view signature;
  std::string context;
  std::vector<std::string> examples;
};

absl::Status ReadExamples(const JsonDocument& document, JsonElement element, std::vector<std::string>* dst) {
  JsonArray array;
  if (element.get(array) != simdjson::SUCCESS) {
    return absl::InvalidArgumentError(absl::StrCat("examples: ", Describe(element), ", expected a list of objects"));
  }
  for (const JsonElement example : array) {
    if (dst->size() > kMaxExamples) return absl::OkStatus();  // MakeExamples() refuses them
    absl::Status status = AppendExample(document, example, &dst->emplace_back());
    if (status.ok()) continue;
    return absl::Status(status.code(), absl::StrCat("examples[", dst->size() - 1, "]: ", status.message()));
  }
  return absl::OkStatus();
}

absl::Status ScanExamples(const JsonDocument& document, ExamplesBody* dst) {
  bool has_signature = false, has_context = false, has_examples = false;
  for (const auto [key, value] : document.root()) {
    bool* const seen = key == "signature_name" ? &has_signature
                       : key == "context"      ? &has_context
                       : key == "examples"     ? &has_examples
                                               : nullptr;
    if (seen == nullptr) continue;
    if (*seen) return absl::InvalidArgumentError(absl::StrCat(key, ": given twice, expected once"));
    *seen = true;
    absl::Status status;
    if (seen == &has_signature) status = ReadSignatureName(value, &dst->signature);
    if (seen == &has_examples) status = ReadExamples(document, value, &dst->examples);
    if (seen == &has_context) {
      status = AppendExample(document, value, &dst->context);
      if (!status.ok()) status = absl::Status(status.code(), absl::StrCat("context: ", status.message()));
    }
    if (!status.ok()) return status;
  }
  if (has_examples) return absl::OkStatus();
  return absl::InvalidArgumentError("examples: missing");
}

class ExampleJson final : public Codec {
 public:
  explicit ExampleJson(ExampleMethod method) : method_(method) {}

  absl::Status Decode(std::string_view bytes, const SignatureSet& signatures, const RequestOptions& options,
                      DecodedRequest* dst) const override {
    JsonDocument document;
    if (absl::Status status = document.Parse(bytes); !status.ok()) return status;
    ExamplesBody body;
    if (absl::Status status = ScanExamples(document, &body); !status.ok()) return status;
    dst->Clear();
    const std::string_view name = options.signature.empty() ? body.signature : options.signature;
    absl::Status found = SelectSignature(signatures, name, dst, absl::StatusCode::kInvalidArgument);
    if (!found.ok()) return found;
    ExampleBatch batch;
    batch.context = body.context;
    batch.examples.assign(body.examples.begin(), body.examples.end());
    Tensor examples;
    if (absl::Status status = MakeExamples(batch, &examples); !status.ok()) return status;
    auto details = std::make_shared<ExampleDetails>();
    if (absl::Status s = PrepareTask(method_, examples, dst, details.get()); !s.ok()) return s;
    dst->details = std::move(details);
    return absl::OkStatus();
  }

  absl::Status Encode(const DecodedRequest& request, const std::vector<Tensor>& outputs, const ResponseContext&,
                      Response* dst) const override {
    const auto& details = static_cast<const ExampleDetails&>(*request.details);
    JsonWriter json;
    if (absl::Status status = json.Reserve(outputs, 0); !status.ok()) return status;
    json.Text("{\"results\":[");
    absl::Status status = method_ == ExampleMethod::kClassify ? WriteClasses(details, outputs, &json)
                                                              : WriteValues(details, outputs, &json);
    if (!status.ok()) return status;
    json.Text("]}");
    return Finish(json, dst);
  }

 private:
  static absl::Status WriteClasses(const ExampleDetails& details, const std::vector<Tensor>& outputs,
                                   JsonWriter* json) {
    Classifications c;
    absl::Status status = ReadClassifications(details.tasks[0], outputs.data(), details.examples, &c);
    if (!status.ok()) return status;
    for (int64_t i = 0; i < details.examples; ++i) {
      json->Text(i == 0 ? "[" : ",[");
      for (int64_t k = i * c.classes; k < (i + 1) * c.classes; ++k) {
        json->Text(k == i * c.classes ? "[" : ",[");
        if (c.labels == nullptr) {
          json->Text("\"\"");
        } else {
          json->Bytes({c.labels[k].data(), c.labels[k].size()}, /*binary=*/false);
        }
        json->Text(",").Float(c.scores == nullptr ? 0 : c.scores[k]).Text("]");
      }
      json->Text("]");
    }
    return absl::OkStatus();
  }

  static absl::Status WriteValues(const ExampleDetails& details, const std::vector<Tensor>& outputs, JsonWriter* json) {
    const float* values = nullptr;
    absl::Status status = ReadRegressions(details.tasks[0], outputs.data(), details.examples, &values);
    if (!status.ok()) return status;
    for (int64_t i = 0; i < details.examples; ++i) json->Text(i == 0 ? "" : ",").Float(values[i]);
    return absl::OkStatus();
  }

  const ExampleMethod method_;
};

}  // namespace

const Codec* ClassifyJsonCodec() {
  static const ExampleJson codec(ExampleMethod::kClassify);
  return &codec;
}

const Codec* RegressJsonCodec() {
  static const ExampleJson codec(ExampleMethod::kRegress);
  return &codec;
}

}  // namespace processor
