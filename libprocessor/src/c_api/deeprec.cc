// SPDX-License-Identifier: Apache-2.0
// The drop-in contract, on top of the modern ABI's parts.
#include "processor/deeprec.h"

#include <algorithm>
#include <string>
#include <string_view>
#include <vector>

#include "processor/processor.h"
#include "src/base/log.h"
#include "src/c_api/boundary.h"
#include "src/c_api/handle.h"
#include "src/c_api/request_work.h"
#include "src/codec/wire.h"

namespace {

using processor::Buffer;
using processor::Model;

constexpr int kOk = 200;
constexpr int kFailed = 500;

// Hands a buffer over to the host. Its size has been checked.
void HandOver(Buffer buffer, void **data, int *size) {
  *size = static_cast<int>(buffer.size());
  *data = buffer.Release();
}

// Returns a failure as a text, which needs nothing but malloc.
int Fail(std::string_view what, std::string_view message, void **data, int *size) noexcept {
  const std::string_view parts[] = {"[TensorFlow] Processor ", what, " failed: ", message};
  size_t length = 0;
  for (std::string_view part : parts) length += part.size();
  Buffer text;
  // If there is no memory for the text, the host still gets the 500.
  if (!text.Allocate(length)) return kFailed;
  char *end = text.data();
  for (std::string_view part : parts) end = std::copy(part.begin(), part.end(), end);
  HandOver(std::move(text), data, size);
  return kFailed;
}

// Returns false if there is nowhere to put a response.
bool ClearOutputs(void **data, int *size) noexcept {
  if (data == nullptr || size == nullptr) return false;
  *data = nullptr;
  *size = 0;
  return true;
}

absl::Status ToRequest(const void *data, int size, processor_request *request) {
  if (size < 0) return absl::InvalidArgumentError(absl::StrCat("input_size: ", size, ", expected 0 or more"));
  *request = processor_request{};
  request->struct_size = sizeof *request;
  request->protocol = "eas";
  request->data = data;
  request->size = static_cast<size_t>(size);
  return absl::OkStatus();
}

// Returns a request that the modern ABI refuses, because its data are NULL and its size is not 0.
processor_request RefusedRequest() {
  processor_request request{};
  request.struct_size = sizeof request;
  request.protocol = "eas";
  request.size = 1;
  return request;
}

// Hands the bytes of a result over to the host, or the text of an error.
int FinishCall(processor_status status, processor_result *result, const processor_error &error, void **data,
               int *size) noexcept {
  if (status != PROCESSOR_OK) return Fail("predict", error.message, data, size);
  Buffer bytes = std::move(result->bytes);
  processor_result_free(result);
  HandOver(std::move(bytes), data, size);
  return kOk;
}

absl::Status Initialize(const char *model_entry, const char *model_config, processor_model **handle) {
  if (model_config == nullptr) return absl::InvalidArgumentError("model_config: NULL, expected a JSON object");
  processor::ModelConfig config;
  if (absl::Status s = ParseModelConfig(model_config, processor::ConfigDialect::kDropIn, &config); !s.ok()) return s;
  std::shared_ptr<Model> model;
  if (absl::Status s = Model::Load(std::move(config), model_entry == nullptr ? "" : model_entry, &model); !s.ok()) {
    return s;
  }
  *handle = processor::MakeHandle(std::move(model));
  return absl::OkStatus();
}

absl::Status ServingModelInfo(void *model_buf, Buffer *bytes) {
  std::shared_ptr<Model> model;
  if (absl::Status s = processor::GetModel(static_cast<processor_model *>(model_buf), &model); !s.ok()) return s;
  const std::shared_ptr<processor::ModelVersion> version = model->version();
  if (version == nullptr) return absl::FailedPreconditionError("model: freed, expected one that is loaded");
  const processor::VersionSource &source = version->source();
  const std::string &path = source.checkpoint_prefix.empty() ? source.saved_model_dir : source.checkpoint_prefix;
  constexpr uint32_t kModelPath = 1;
  if (!bytes->Allocate(processor::BytesFieldSize(kModelPath, path.size()))) {
    return absl::ResourceExhaustedError("no memory left");
  }
  processor::WireWriter(bytes->data()).BytesField(kModelPath, path);
  return absl::OkStatus();
}

int BatchProcess(processor_model *handle, size_t count, const void *input_data[], const int *input_size,
                 void *output_data[], int *output_size) {
  std::vector<processor_request> requests(count);
  std::vector<processor_result *> results(count, nullptr);
  std::vector<processor_error> errors(count);
  std::vector<absl::Status> given(count);
  for (size_t i = 0; i < count; ++i) {
    given[i] = processor::Attempt([&] { return ToRequest(input_data[i], input_size[i], &requests[i]); });
    // A request that cannot be read must not prevent the others from running: the batch refuses it alone.
    if (!given[i].ok()) requests[i] = RefusedRequest();
  }
  // Nothing throws from here on, so every response reaches the host.
  processor_model_run_batch(handle, requests.data(), count, results.data(), errors.data());
  int code = kOk;
  for (size_t i = 0; i < count; ++i) {
    processor::Report(given[i], &errors[i]);
    if (FinishCall(errors[i].code, results[i], errors[i], &output_data[i], &output_size[i]) != kOk) code = kFailed;
  }
  return code;
}

}  // namespace

extern "C" {

void *initialize(const char *model_entry, const char *model_config, int *state) {
  processor_model *handle = nullptr;
  const processor_status status = processor::Guard(nullptr, [&] {
    const absl::Status s = processor::Attempt([&] { return Initialize(model_entry, model_config, &handle); });
    if (!s.ok()) {
      processor::Log(processor::Severity::kError,
                     absl::StrCat("initialize failed: ", processor_status_name(static_cast<processor_status>(s.code())),
                                  ": ", s.message()));
    }
    return s;
  });
  if (state != nullptr) *state = status == PROCESSOR_OK ? 0 : -1;
  return handle;
}

int process(void *model_buf, const void *input_data, int input_size, void **output_data, int *output_size) {
  if (!ClearOutputs(output_data, output_size)) return kFailed;
  processor_request request;
  processor_result *result = nullptr;
  processor_error error;
  processor_status status = processor::Guard(&error, [&] { return ToRequest(input_data, input_size, &request); });
  if (status == PROCESSOR_OK) {
    status = processor_model_run(static_cast<processor_model *>(model_buf), &request, &result, &error);
  }
  return FinishCall(status, result, error, output_data, output_size);
}

int batch_process(void *model_buf, const void *input_data[], int *input_size, void *output_data[], int *output_size) {
  if (output_data == nullptr || output_size == nullptr) return kFailed;
  auto *handle = static_cast<processor_model *>(model_buf);
  const size_t count = processor::BatchCount(handle);
  for (size_t i = 0; i < count; ++i) ClearOutputs(&output_data[i], &output_size[i]);
  int code = kOk;
  processor_error error;
  const processor_status status = processor::Guard(&error, [&]() -> absl::Status {
    if (input_data == nullptr || input_size == nullptr) return absl::InvalidArgumentError("batch: an array is NULL");
    code = BatchProcess(handle, count, input_data, input_size, output_data, output_size);
    return absl::OkStatus();
  });
  if (status == PROCESSOR_OK) return code;
  for (size_t i = 0; i < count; ++i) Fail("predict", error.message, &output_data[i], &output_size[i]);
  return kFailed;
}

int get_serving_model_info(void *model_buf, void **output_data, int *output_size) {
  if (!ClearOutputs(output_data, output_size)) return kFailed;
  Buffer bytes;
  processor_error error;
  const processor_status status = processor::Guard(&error, [&] { return ServingModelInfo(model_buf, &bytes); });
  if (status != PROCESSOR_OK) {
    return Fail("get_serving_model_info", error.message, output_data, output_size);
  }
  HandOver(std::move(bytes), output_data, output_size);
  return kOk;
}

}  // extern "C"
