// SPDX-License-Identifier: Apache-2.0
#include "src/c_api/handle.h"

#include <mutex>
#include <utility>
#include <vector>

#include "src/c_api/quarantine.h"

namespace processor {
namespace {

using Place = Published<Model>;

// The places of models that were freed. They are never deleted, since a thread may still read one through the handle of a
// freed model; it then sees that the handle no longer has the place.
class Places {
 public:
  static Places &Global() {
    static auto *const places = new Places;
    return *places;
  }

  Place *Take() {
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (!free_.empty()) {
        Place *const place = free_.back();
        free_.pop_back();
        return place;
      }
      free_.reserve(++made_);  // so that Put() needs no memory
    }
    return new Place;
  }
  void Put(Place *place) noexcept {
    std::lock_guard<std::mutex> lock(mutex_);
    free_.push_back(place);
  }

 private:
  std::mutex mutex_;
  std::vector<Place *> free_;
  size_t made_ = 0;
};

}  // namespace

processor_model *MakeHandle(std::shared_ptr<Model> model) {
  processor_model *handle = Quarantine<processor_model>::Global().Take();
  handle->batch_count = model->config().batch_process_count;
  Place *const place = Places::Global().Take();
  place->Exchange(std::move(model));
  handle->place = place;
  return handle;
}

absl::Status GetModel(const processor_model *handle, std::shared_ptr<Model> *model) {
  if (handle == nullptr) return absl::InvalidArgumentError("model: NULL, expected a handle");
  Place *const place = handle->place.load();
  if (place != nullptr) *model = place->Read();
  if (place != nullptr && *model != nullptr && handle->place.load() == place) return absl::OkStatus();
  model->reset();
  return absl::FailedPreconditionError("model: freed, expected one that is loaded");
}

size_t BatchCount(const processor_model *handle) noexcept {
  if (handle == nullptr) return 1;
  return static_cast<size_t>(handle->batch_count.load());
}

void FreeHandle(processor_model *handle) {
  if (handle == nullptr) return;
  Place *const place = handle->place.exchange(nullptr);
  if (place == nullptr) return;
  const std::shared_ptr<Model> model = place->Exchange(nullptr);
  Places::Global().Put(place);
  model->Close();
  Quarantine<processor_model>::Global().Put(handle);
}

}  // namespace processor
