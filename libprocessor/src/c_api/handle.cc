// SPDX-License-Identifier: Apache-2.0
#include "src/c_api/handle.h"

#include <utility>

#include "src/c_api/quarantine.h"

namespace processor {

processor_model *MakeHandle(std::shared_ptr<Model> model) {
  processor_model *handle = Quarantine<processor_model>::Global().Take();
  handle->batch_count = model->config().batch_process_count;
  handle->model.Exchange(std::move(model));
  return handle;
}

absl::Status GetModel(const processor_model *handle, std::shared_ptr<Model> *model) {
  if (handle == nullptr) return absl::InvalidArgumentError("model: NULL, expected a handle");
  *model = handle->model.Read();
  if (*model == nullptr) return absl::FailedPreconditionError("model: freed, expected one that is loaded");
  return absl::OkStatus();
}

size_t BatchCount(const processor_model *handle) noexcept {
  if (handle == nullptr) return 1;
  return static_cast<size_t>(handle->batch_count.load());
}

void FreeHandle(processor_model *handle) {
  if (handle == nullptr) return;
  const std::shared_ptr<Model> model = handle->model.Exchange(nullptr);
  if (model == nullptr) return;
  model->Close();
  Quarantine<processor_model>::Global().Put(handle);
}

}  // namespace processor
