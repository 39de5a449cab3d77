// SPDX-License-Identifier: Apache-2.0
// What a kernel makes of its weights, once for all sessions of a model version.
#ifndef PROCESSOR_KERNELS_SHARED_WEIGHTS_H_
#define PROCESSOR_KERNELS_SHARED_WEIGHTS_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/platform/hash.h"

namespace processor {

/// Holds a T that is made from the weights of a kernel, which do not change after the first run.
template <typename T>
class SharedWeights {
 public:
  using Tensors = std::vector<const tensorflow::Tensor*>;

  /// What was made, or null; it stays.
  const T* get() const { return made_.load(std::memory_order_acquire); }

  /// Makes it, unless a kernel of the same name and attributes has done so with equal weights.
  ///
  /// \param make (std::unique_ptr<T>*) -> absl::Status
  template <typename Make>
  absl::Status Find(const tensorflow::OpKernel& kernel, const Tensors& weights, tensorflow::ResourceMgr* resources,
                    const Make& make) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (get() != nullptr) return absl::OkStatus();
    // Nodes of two models may have one name in stock TensorFlow: whatever differs is another resource.
    uint64_t print = tensorflow::Hash64(tensorflow::SummarizeAttrs(kernel.def()));
    for (const tensorflow::Tensor* weight : weights) {
      const std::string shape = weight->shape().DebugString();
      print = tensorflow::Hash64(shape.data(), shape.size(), print);
      print = tensorflow::Hash64(weight->tensor_data().data(), weight->tensor_data().size(), print);
    }
    Resource* found = nullptr;
    const absl::Status status = resources->LookupOrCreate<Resource>(
        "recprocessor_packed", absl::StrCat(kernel.name(), "/", absl::Hex(print)), &found, [&](Resource** created) {
          std::unique_ptr<T> object;
          if (absl::Status made = make(&object); !made.ok()) return made;
          *created = new Resource(std::move(object));
          return absl::OkStatus();
        });
    if (!status.ok()) return status;
    resource_.reset(found);
    made_.store(found->object(), std::memory_order_release);
    return absl::OkStatus();
  }

  /// Does so at load, if all weights, `count` inputs from `first` on, are constants.
  template <typename Make>
  absl::Status Prepare(const tensorflow::OpKernel& kernel, absl::Span<const tensorflow::Tensor* const> inputs,
                       size_t first, size_t count, tensorflow::ResourceMgr* resources, const Make& make) {
    Tensors weights;
    for (size_t i = first; i < first + count; ++i) {
      if (i >= inputs.size() || inputs[i] == nullptr) return absl::OkStatus();
      weights.push_back(inputs[i]);
    }
    return Find(kernel, weights, resources, [&](std::unique_ptr<T>* object) { return make(weights, object); });
  }

  /// Does so in a request, unless it was done.
  template <typename Make>
  absl::Status Compute(const tensorflow::OpKernel& kernel, tensorflow::OpKernelContext* context, size_t first,
                       size_t count, const Make& make) {
    if (get() != nullptr) return absl::OkStatus();
    Tensors weights;
    for (size_t i = first; i < first + count; ++i) weights.push_back(&context->input(static_cast<int>(i)));
    return Find(kernel, weights, context->resource_manager(),
                [&](std::unique_ptr<T>* object) { return make(weights, object); });
  }

 private:
  class Resource : public tensorflow::ResourceBase {
   public:
    explicit Resource(std::unique_ptr<const T> object) : object_(std::move(object)) {}
    const T* object() const { return object_.get(); }
    std::string DebugString() const override { return "what a kernel made of its weights"; }

   private:
    const std::unique_ptr<const T> object_;
  };

  std::mutex mutex_;
  tensorflow::core::RefCountPtr<Resource> resource_;
  std::atomic<const T*> made_{nullptr};
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_SHARED_WEIGHTS_H_
