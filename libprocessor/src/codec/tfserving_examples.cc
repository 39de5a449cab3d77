// SPDX-License-Identifier: Apache-2.0
// Protocol "tfserving", methods Classify, Regress and MultiInference.
#include <cstring>
#include <set>

#include "absl/strings/str_cat.h"
#include "src/codec/examples.h"
#include "src/codec/message_text.h"
#include "src/codec/predict_codec.h"
#include "src/codec/protocols.h"
#include "src/codec/tfserving_input.h"
#include "src/codec/tfserving_spec.h"

namespace processor {
namespace {

using tensorflow::Tensor;

/// Fields of ClassificationRequest and RegressionRequest, and of their answers.
constexpr uint32_t kRequestSpec = 1;
constexpr uint32_t kRequestInput = 2;
constexpr uint32_t kAnswerResult = 1;
constexpr uint32_t kAnswerSpec = 2;

/// Fields of MultiInferenceRequest, InferenceTask, MultiInferenceResponse and InferenceResult.
constexpr uint32_t kTasks = 1;
constexpr uint32_t kTaskSpec = 1;
constexpr uint32_t kTaskMethodName = 2;
constexpr uint32_t kResults = 1;
constexpr uint32_t kResultSpec = 1;
constexpr uint32_t kResultClassification = 2;
constexpr uint32_t kResultRegression = 3;

/// Fields of ClassificationResult and RegressionResult (`repeated ... = 1`), and of what they hold.
constexpr uint32_t kItems = 1;
constexpr uint32_t kClasses = 1;
constexpr uint32_t kLabel = 1;
constexpr uint32_t kScore = 2;
constexpr uint32_t kValue = 1;

absl::Status MalformedExamples(std::string_view what, std::string_view expected) {
  return absl::InvalidArgumentError(
      absl::StrCat(what, ": malformed or truncated bytes, expected a ", expected, " of protocol 'tfserving'"));
}

/// A float field; zero is left out, as it is the default.
size_t FloatSize(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits == 0 ? 0 : 1 + sizeof(bits);
}

void WriteFloat(uint32_t number, float value, WireWriter* writer) {
  if (FloatSize(value) == 0) return;
  writer->Tag(number, WireType::kFixed32);
  writer->Raw(&value, sizeof(value));
}

/// The message of one task's result, measured before it is written.
class Result {
 public:
  /// \param outputs  those of the task.
  absl::Status Measure(const ExampleTask& task, const Tensor* outputs, int64_t examples) {
    task_ = &task;
    examples_ = examples;
    size_ = 0;
    if (task.method == ExampleMethod::kRegress) {
      if (absl::Status s = ReadRegressions(task, outputs, examples, &values_); !s.ok()) return s;
      for (int64_t i = 0; i < examples; ++i) size_ += BytesFieldSize(kItems, FloatSize(values_[i]));
      return absl::OkStatus();
    }
    if (absl::Status s = ReadClassifications(task, outputs, examples, &classes_); !s.ok()) return s;
    for (int64_t i = 0; i < examples; ++i) size_ += BytesFieldSize(kItems, RowSize(i));
    return absl::OkStatus();
  }

  size_t size() const { return size_; }
  const ExampleTask& task() const { return *task_; }

  void Write(WireWriter* writer) const {
    for (int64_t i = 0; i < examples_; ++i) {
      if (task_->method == ExampleMethod::kRegress) {
        writer->BytesHeader(kItems, FloatSize(values_[i]));
        WriteFloat(kValue, values_[i], writer);
        continue;
      }
      writer->BytesHeader(kItems, RowSize(i));
      for (int64_t k = i * classes_.classes; k < (i + 1) * classes_.classes; ++k) {
        writer->BytesHeader(kClasses, ClassSize(k));
        if (!Label(k).empty()) writer->BytesField(kLabel, Label(k));
        WriteFloat(kScore, Score(k), writer);
      }
    }
  }

 private:
  std::string_view Label(int64_t k) const {
    if (classes_.labels == nullptr) return {};
    return {classes_.labels[k].data(), classes_.labels[k].size()};
  }
  float Score(int64_t k) const { return classes_.scores == nullptr ? 0 : classes_.scores[k]; }
  size_t ClassSize(int64_t k) const {
    return (Label(k).empty() ? 0 : BytesFieldSize(kLabel, Label(k).size())) + FloatSize(Score(k));
  }
  size_t RowSize(int64_t i) const {
    size_t size = 0;
    for (int64_t k = i * classes_.classes; k < (i + 1) * classes_.classes; ++k) {
      size += BytesFieldSize(kClasses, ClassSize(k));
    }
    return size;
  }

  const ExampleTask* task_ = nullptr;
  int64_t examples_ = 0;
  Classifications classes_;
  const float* values_ = nullptr;
  size_t size_ = 0;
};

class ExampleCodec final : public Codec {
 public:
  explicit ExampleCodec(ExampleMethod method) : method_(method) {}

  absl::Status Decode(std::string_view bytes, const SignatureSet& signatures, const RequestOptions& options,
                      DecodedRequest* dst) const override {
    ModelSpecView spec;
    InputMessage input;
    bool spec_ok = true, input_ok = true;
    const bool ok = ForEachField(bytes, [&](const WireField& field) {
      if (field.type != WireType::kBytes) return true;
      if (field.number == kRequestSpec) spec_ok = spec_ok && ReadModelSpec(field.payload, &spec);
      if (field.number == kRequestInput) input_ok = input_ok && input.Read(field.payload);
      return true;
    });
    if (!ok) {
      return MalformedExamples("request",
                               method_ == ExampleMethod::kClassify ? "ClassificationRequest" : "RegressionRequest");
    }
    if (!spec_ok) return MalformedExamples("model_spec", "ModelSpec");
    if (!input_ok) return MalformedExamples("input", "Input");
    dst->Clear();
    SetModel(spec, dst);
    const std::string_view name = options.signature.empty() ? spec.signature : options.signature;
    absl::Status found = SelectSignature(signatures, name, dst, absl::StatusCode::kInvalidArgument);
    if (!found.ok()) return found;
    Tensor examples;
    if (absl::Status status = MakeExamples(input.batch(), &examples); !status.ok()) return status;
    auto details = std::make_shared<ExampleDetails>();
    if (absl::Status s = PrepareTask(method_, examples, dst, details.get()); !s.ok()) return s;
    dst->details = std::move(details);
    return absl::OkStatus();
  }

  absl::Status Encode(const DecodedRequest& request, const std::vector<Tensor>& outputs, const ResponseContext& context,
                      Response* dst) const override {
    const auto& details = static_cast<const ExampleDetails&>(*request.details);
    Result result;
    if (absl::Status s = result.Measure(details.tasks[0], outputs.data(), details.examples); !s.ok()) return s;
    const ModelSpecView spec = AnswerSpec(request, context);
    const size_t total =
        BytesFieldSize(kAnswerResult, result.size()) + BytesFieldSize(kAnswerSpec, ModelSpecSize(spec));
    if (absl::Status status = MakeRoom(total, &dst->body); !status.ok()) return status;
    WireWriter writer(dst->body.data());
    writer.BytesHeader(kAnswerResult, result.size());
    result.Write(&writer);
    writer.BytesHeader(kAnswerSpec, ModelSpecSize(spec));
    WriteModelSpec(spec, &writer);
    return absl::OkStatus();
  }

 private:
  const ExampleMethod method_;
};

/// A task of a few bytes takes more memory than that until it is refused as the second of its signature.
constexpr size_t kMaxTasks = 1000;

struct TaskMessage {
  ModelSpecView spec;
  std::string_view method_name;
};

bool ReadTask(std::string_view message, TaskMessage* dst) {
  return ForEachField(message, [dst](const WireField& field) {
    if (field.type != WireType::kBytes) return true;
    if (field.number == kTaskMethodName) dst->method_name = field.payload;
    return field.number != kTaskSpec || ReadModelSpec(field.payload, &dst->spec);
  });
}

class MultiCodec final : public Codec {
 public:
  /// The tasks' signature names cannot be overruled by one.
  absl::Status Decode(std::string_view bytes, const SignatureSet& signatures, const RequestOptions&,
                      DecodedRequest* dst) const override {
    InputMessage input;
    std::vector<TaskMessage> tasks;
    size_t count = 0;
    bool tasks_ok = true, input_ok = true;
    const bool ok = ForEachField(bytes, [&](const WireField& field) {
      if (field.type != WireType::kBytes) return true;
      if (field.number == kTasks && ++count <= kMaxTasks) {
        tasks_ok = tasks_ok && ReadTask(field.payload, &tasks.emplace_back());
      }
      if (field.number == kRequestInput) input_ok = input_ok && input.Read(field.payload);
      return true;
    });
    if (!ok) return MalformedExamples("request", "MultiInferenceRequest");
    if (!tasks_ok) return MalformedExamples("tasks", "InferenceTask");
    if (!input_ok) return MalformedExamples("input", "Input");
    if (count == 0 || count > kMaxTasks) {
      return absl::InvalidArgumentError(absl::StrCat("tasks: ", count, ", expected 1 to ", kMaxTasks));
    }
    Tensor examples;
    if (absl::Status status = MakeExamples(input.batch(), &examples); !status.ok()) return status;
    dst->Clear();
    auto details = std::make_shared<ExampleDetails>();
    std::set<const Signature*> seen;
    for (size_t i = 0; i < tasks.size(); ++i) {
      if (absl::Status s = SameModel(tasks[0].spec, tasks[i].spec, i); !s.ok()) return s;
      DecodedRequest next;
      DecodedRequest* const run = i == 0 ? dst : &next;
      if (absl::Status s = Prepare(tasks[i], signatures, examples, run, details.get()); !s.ok()) return s;
      if (!seen.insert(run->signature).second) {
        return absl::InvalidArgumentError(
            absl::StrCat("tasks: signature '", run->signature->name(), "' twice, expected once"));
      }
      if (i > 0) dst->next.push_back(std::move(next));
    }
    dst->details = std::move(details);
    return absl::OkStatus();
  }

  absl::Status Encode(const DecodedRequest& request, const std::vector<Tensor>& outputs, const ResponseContext& context,
                      Response* dst) const override {
    const auto& details = static_cast<const ExampleDetails&>(*request.details);
    std::vector<Result> results(details.tasks.size());
    size_t total = 0, at = 0;
    for (size_t i = 0; i < results.size(); ++i) {
      if (absl::Status s = results[i].Measure(details.tasks[i], &outputs[at], details.examples); !s.ok()) return s;
      at += static_cast<size_t>(details.tasks[i].fetches);
      total += BytesFieldSize(kResults, ItemSize(results[i], Spec(request, context, results[i])));
    }
    if (absl::Status status = MakeRoom(total, &dst->body); !status.ok()) return status;
    WireWriter writer(dst->body.data());
    for (const Result& result : results) {
      const ModelSpecView spec = Spec(request, context, result);
      writer.BytesHeader(kResults, ItemSize(result, spec));
      writer.BytesHeader(kResultSpec, ModelSpecSize(spec));
      WriteModelSpec(spec, &writer);
      writer.BytesHeader(FieldOf(result), result.size());
      result.Write(&writer);
    }
    return absl::OkStatus();
  }

 private:
  static absl::Status SameModel(const ModelSpecView& first, const ModelSpecView& spec, size_t i) {
    if (spec.name == first.name && spec.version == first.version && spec.label == first.label) return absl::OkStatus();
    return absl::InvalidArgumentError(
        absl::StrCat("task ", i, ": model_spec of another model or version, expected that of the first task"));
  }

  static absl::Status Prepare(const TaskMessage& task, const SignatureSet& signatures, const Tensor& examples,
                              DecodedRequest* dst, ExampleDetails* details) {
    SetModel(task.spec, dst);
    absl::Status found = SelectSignature(signatures, task.spec.signature, dst, absl::StatusCode::kInvalidArgument);
    if (!found.ok()) return found;
    for (const ExampleMethod method : {ExampleMethod::kClassify, ExampleMethod::kRegress}) {
      if (task.method_name == MethodName(method)) return PrepareTask(method, examples, dst, details);
    }
    return absl::UnimplementedError(absl::StrCat(
        "task of signature '", dst->signature->name(), "': method_name '", Printable(task.method_name), "', expected '",
        MethodName(ExampleMethod::kClassify), "' or '", MethodName(ExampleMethod::kRegress), "'"));
  }

  static uint32_t FieldOf(const Result& result) {
    return result.task().method == ExampleMethod::kClassify ? kResultClassification : kResultRegression;
  }

  static ModelSpecView Spec(const DecodedRequest& request, const ResponseContext& context, const Result& result) {
    ModelSpecView spec = AnswerSpec(request, context);
    spec.signature = result.task().signature->name();
    return spec;
  }

  static size_t ItemSize(const Result& result, const ModelSpecView& spec) {
    return BytesFieldSize(kResultSpec, ModelSpecSize(spec)) + BytesFieldSize(FieldOf(result), result.size());
  }
};

}  // namespace

const Codec* ClassifyCodec() {
  static const ExampleCodec codec(ExampleMethod::kClassify);
  return &codec;
}

const Codec* RegressCodec() {
  static const ExampleCodec codec(ExampleMethod::kRegress);
  return &codec;
}

const Codec* MultiInferenceCodec() {
  static const MultiCodec codec;
  return &codec;
}

}  // namespace processor
