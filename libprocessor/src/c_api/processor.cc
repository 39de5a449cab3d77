// SPDX-License-Identifier: Apache-2.0
// The modern ABI's models and synchronous requests.
#include "processor/processor.h"

#include <memory>
#include <string>

#include "src/c_api/boundary.h"
#include "src/c_api/handle.h"
#include "src/c_api/request_work.h"
#include "src/c_api/result.h"
#include "src/runtime/model/model.h"

namespace {

using processor::GetModel;
using processor::Guard;
using processor::Model;

absl::Status Load(const processor_load_options *given, processor_model **handle) {
  if (handle == nullptr) return absl::InvalidArgumentError("model: NULL, expected where to put the handle");
  *handle = nullptr;
  processor_load_options options;
  if (absl::Status s = processor::ReadStruct(given, "options", &options); !s.ok()) return s;
  if (absl::Status s = processor::CheckAbiVersion(options.abi_version); !s.ok()) return s;
  processor::ModelConfig config;
  const char *json = options.config == nullptr ? "{}" : options.config;
  if (absl::Status s = ParseModelConfig(json, processor::ConfigDialect::kModern, &config); !s.ok()) return s;
  std::shared_ptr<Model> model;
  if (absl::Status s = Model::Load(std::move(config), options.path == nullptr ? "" : options.path, &model); !s.ok()) {
    return s;
  }
  *handle = processor::MakeHandle(std::move(model));
  return absl::OkStatus();
}

// Makes a result of a text that describes the model.
template <typename Question>
processor_status AskModel(const processor_model *handle, processor_result **result, processor_error *error,
                          Question question) {
  return Guard(error, [&]() -> absl::Status {
    if (result == nullptr) return absl::InvalidArgumentError("result: NULL, expected where to put it");
    *result = nullptr;
    std::shared_ptr<Model> model;
    if (absl::Status s = GetModel(handle, &model); !s.ok()) return s;
    *result = processor::TextResult(question(*model)).release();
    return absl::OkStatus();
  });
}

}  // namespace

extern "C" {

processor_status processor_model_load(const processor_load_options *options, processor_model **model,
                                      processor_error *error) {
  return Guard(error, [&] { return Load(options, model); });
}

void processor_model_free(processor_model *model) {
  Guard(nullptr, [&] {
    processor::FreeHandle(model);
    return absl::OkStatus();
  });
}

processor_status processor_model_drain(const processor_model *handle, int64_t deadline_us, processor_error *error) {
  return Guard(error, [&]() -> absl::Status {
    std::shared_ptr<Model> model;
    if (absl::Status s = GetModel(handle, &model); !s.ok()) return s;
    return model->Drain(deadline_us);
  });
}

processor_status processor_model_set_cpuset(const processor_model *handle, const char *cpuset, processor_error *error) {
  return Guard(error, [&]() -> absl::Status {
    std::shared_ptr<Model> model;
    if (absl::Status s = GetModel(handle, &model); !s.ok()) return s;
    return model->SetCpuset(cpuset == nullptr ? "" : cpuset);
  });
}

processor_status processor_model_set_batching(const processor_model *handle, const char *batching,
                                              processor_error *error) {
  return Guard(error, [&]() -> absl::Status {
    if (batching == nullptr) return absl::InvalidArgumentError("batching: NULL, expected JSON");
    processor::BatchOptions options;
    if (absl::Status s = processor::ParseBatchOptions(batching, &options); !s.ok()) {
      return absl::Status(s.code(), absl::StrCat("batching: ", s.message()));
    }
    std::shared_ptr<Model> model;
    if (absl::Status s = GetModel(handle, &model); !s.ok()) return s;
    model->SetBatching(options);
    return absl::OkStatus();
  });
}

processor_status processor_model_info(const processor_model *handle, processor_result **result,
                                      processor_error *error) {
  return AskModel(handle, result, error, [](const Model &model) { return model.InfoJson(); });
}

processor_status processor_model_signatures(const processor_model *handle, processor_result **result,
                                            processor_error *error) {
  return AskModel(handle, result, error, [](const Model &model) { return model.SignaturesJson(); });
}

processor_status processor_model_stats(const processor_model *handle, processor_result **result,
                                       processor_error *error) {
  return AskModel(handle, result, error, [](const Model &model) { return model.StatsJson(); });
}

processor_status processor_model_run(const processor_model *handle, const processor_request *given,
                                     processor_result **result, processor_error *error) {
  return Guard(error, [&]() -> absl::Status {
    if (result == nullptr) return absl::InvalidArgumentError("result: NULL, expected where to put it");
    *result = nullptr;
    processor::CheckedRequest request;
    if (absl::Status s = processor::ReadRequest(given, &request); !s.ok()) return s;
    std::shared_ptr<Model> model;
    if (absl::Status s = GetModel(handle, &model); !s.ok()) return s;
    if (auto text = processor::SignatureIfAskedFor(request, *model)) {
      *result = text.release();
      return absl::OkStatus();
    }
    processor::RequestWork<processor::Work> work(request, /*lent=*/true);
    if (absl::Status s = model->Run(work); !s.ok()) return s;
    work.reader.result->timing = work.timing;
    *result = work.reader.result.release();
    return absl::OkStatus();
  });
}

}  // extern "C"
