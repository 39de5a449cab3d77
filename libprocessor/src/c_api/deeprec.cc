// SPDX-License-Identifier: Apache-2.0
// The drop-in contract, on top of the modern ABI's parts.
#include "processor/deeprec.h"

#include <climits>
#include <string>
#include <vector>

#include "processor/processor.h"
#include "src/c_api/boundary.h"
#include "src/c_api/handle.h"
#include "src/c_api/request_work.h"
#include "src/codec/wire.h"
#include "src/runtime/log.h"

namespace {

using processor::Buffer;
using processor::Model;

constexpr int kOk = 200;
constexpr int kFailed = 500;

// Gives a buffer to the host. Negative sizes and the like never get here.
void HandOver(Buffer buffer, void **data, int *size) {
  *size = static_cast<int>(buffer.size());
  *data = buffer.Release();
}

int Fail(std::string_view what, const absl::Status &status, void **data, int *size) {
  Buffer text;
  // Without memory for a text there is still the 500.
  if (text.Assign(absl::StrCat("[TensorFlow] Processor ", what, " failed: ", status.message()))) {
    HandOver(std::move(text), data, size);
  }
  return kFailed;
}

absl::Status CheckOutputs(void **data, int *size) {
  if (data == nullptr || size == nullptr) return absl::InvalidArgumentError("output_data or output_size: NULL");
  *data = nullptr;
  *size = 0;
  return absl::OkStatus();
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

// A request that the modern ABI refuses, for it has bytes at no address.
processor_request RefusedRequest() {
  processor_request request{};
  request.struct_size = sizeof request;
  request.protocol = "eas";
  request.size = 1;
  return request;
}

int Finish(processor_status status, processor_result *result, const processor_error &error, void **data, int *size) {
  // Without memory for the batch itself there are neither results nor errors.
  if (status == PROCESSOR_OK && result == nullptr) {
    return Fail("predict", absl::ResourceExhaustedError("no memory left"), data, size);
  }
  if (status != PROCESSOR_OK) {
    return Fail("predict", absl::Status(static_cast<absl::StatusCode>(status), error.message), data, size);
  }
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

}  // namespace

extern "C" {

void *initialize(const char *model_entry, const char *model_config, int *state) {
  processor_model *handle = nullptr;
  processor_error error;
  const processor_status status =
      processor::Guard(&error, [&] { return Initialize(model_entry, model_config, &handle); });
  if (status != PROCESSOR_OK) {
    processor::Log(processor::Severity::kError,
                   absl::StrCat("initialize failed: ", processor_status_name(status), ": ", error.message));
  }
  if (state != nullptr) *state = status == PROCESSOR_OK ? 0 : -1;
  return handle;
}

int process(void *model_buf, const void *input_data, int input_size, void **output_data, int *output_size) {
  if (!CheckOutputs(output_data, output_size).ok()) return kFailed;
  processor_request request;
  if (absl::Status s = ToRequest(input_data, input_size, &request); !s.ok()) {
    return Fail("predict", s, output_data, output_size);
  }
  processor_result *result = nullptr;
  processor_error error;
  const processor_status status =
      processor_model_run(static_cast<processor_model *>(model_buf), &request, &result, &error);
  return Finish(status, result, error, output_data, output_size);
}

int batch_process(void *model_buf, const void *input_data[], int *input_size, void *output_data[], int *output_size) {
  int code = kOk;
  const processor_status status = processor::Guard(nullptr, [&]() -> absl::Status {
    if (input_data == nullptr || input_size == nullptr || output_data == nullptr || output_size == nullptr) {
      return absl::InvalidArgumentError("batch: an array is NULL");
    }
    auto *handle = static_cast<processor_model *>(model_buf);
    std::shared_ptr<Model> model;
    if (absl::Status s = processor::GetModel(handle, &model); !s.ok()) {
      // How many there are is not known without the model; there is at least one.
      CheckOutputs(&output_data[0], &output_size[0]).IgnoreError();
      Fail("predict", s, &output_data[0], &output_size[0]);
      return s;
    }
    const size_t count = static_cast<size_t>(model->config().batch_process_count);
    std::vector<processor_request> requests(count);
    std::vector<processor_result *> results(count, nullptr);
    std::vector<processor_error> errors(count);
    std::vector<absl::Status> given(count);
    for (size_t i = 0; i < count; ++i) {
      CheckOutputs(&output_data[i], &output_size[i]).IgnoreError();
      given[i] = ToRequest(input_data[i], input_size[i], &requests[i]);
      // One request that cannot be read must not keep the others from being answered: it is refused with them.
      if (!given[i].ok()) requests[i] = RefusedRequest();
    }
    processor_model_run_batch(handle, requests.data(), count, results.data(), errors.data());
    for (size_t i = 0; i < count; ++i) processor::Report(given[i], &errors[i]);
    for (size_t i = 0; i < count; ++i) {
      if (Finish(errors[i].code, results[i], errors[i], &output_data[i], &output_size[i]) != kOk) code = kFailed;
    }
    return absl::OkStatus();
  });
  return status == PROCESSOR_OK ? code : kFailed;
}

int get_serving_model_info(void *model_buf, void **output_data, int *output_size) {
  if (!CheckOutputs(output_data, output_size).ok()) return kFailed;
  Buffer bytes;
  processor_error error;
  const processor_status status = processor::Guard(&error, [&] { return ServingModelInfo(model_buf, &bytes); });
  if (status != PROCESSOR_OK) {
    return Fail("get_serving_model_info", absl::Status(static_cast<absl::StatusCode>(status), error.message),
                output_data, output_size);
  }
  HandOver(std::move(bytes), output_data, output_size);
  return kOk;
}

}  // extern "C"
