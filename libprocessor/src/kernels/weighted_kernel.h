// SPDX-License-Identifier: Apache-2.0
// Kernels whose prepared weights are shared by the sessions of a model version.
#ifndef PROCESSOR_KERNELS_WEIGHTED_KERNEL_H_
#define PROCESSOR_KERNELS_WEIGHTED_KERNEL_H_

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
#include "src/kernels/live_weights.h"
#include "src/kernels/prepared_kernel.h"
#include "tensorflow/core/framework/node_def_util.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/resource_mgr.h"
#include "tensorflow/core/platform/hash.h"

namespace processor {

/// A kernel that makes a T of its weights once for all sessions of a model version, and owns a share of it. Its weights do
/// not change after the first run, apart from those of a live model, which has a T for each epoch that changes them.
template <typename T>
class WeightedKernel : public tensorflow::OpKernel, public PreparedKernel {
 public:
  using OpKernel::OpKernel;
  using Weights = std::vector<const tensorflow::Tensor*>;

  absl::Status Prepare(absl::Span<const tensorflow::Tensor* const> constant_inputs,
                       tensorflow::ResourceMgr* resources) override {
    Weights weights;
    for (size_t i = first_; i < first_ + count_; ++i) {
      if (i >= constant_inputs.size() || constant_inputs[i] == nullptr) return absl::OkStatus();
      weights.push_back(constant_inputs[i]);
    }
    return Find(weights, resources);
  }

 protected:
  /// The weights are `count` inputs, beginning with input `first`. Reads the attributes `num_views` and `formulas`. The
  /// destructor of a kernel must call ForgetViews().
  absl::Status SetWeights(tensorflow::OpKernelConstruction* context, size_t first, size_t count) {
    first_ = first;
    count_ = count;
    const auto make = [this](const Weights& weights, const std::string&, std::shared_ptr<const void>* object) {
      std::unique_ptr<T> made;
      if (absl::Status s = Make(weights, &made); !s.ok()) return s;
      *object = std::move(made);
      return absl::OkStatus();
    };
    return live_.Read(context, first, count, /*has_precision=*/false, make);
  }
  /// Waits until no epoch is made with this kernel.
  void ForgetViews() { live_.Forget(); }

  /// Makes a T, which copies what it needs of the weights. \return INVALID_ARGUMENT for shapes that do not fit.
  virtual absl::Status Make(const Weights& weights, std::unique_ptr<T>* object) const = 0;

  /// Returns the T at the epoch of the request; that of the inputs is made in the first request if it was not prepared.
  absl::Status Get(tensorflow::OpKernelContext* context, const T** object) {
    *object = made_.load(std::memory_order_acquire);
    if (*object == nullptr) {
      Weights weights;
      for (size_t i = first_; i < first_ + count_; ++i) weights.push_back(&context->input(static_cast<int>(i)));
      if (absl::Status s = Find(weights, context->resource_manager()); !s.ok()) return s;
      *object = made_.load(std::memory_order_acquire);
    }
    const void* changed = nullptr;
    if (absl::Status s = live_.Find(context, print_, &changed); !s.ok()) return s;
    if (changed != nullptr) *object = static_cast<const T*>(changed);
    return absl::OkStatus();
  }

 private:
  // Makes the T, unless a kernel of the same name and attributes has made it of equal weights.
  absl::Status Find(const Weights& weights, tensorflow::ResourceMgr* resources) {
    std::lock_guard<std::mutex> lock(mutex_);
    if (made_.load(std::memory_order_relaxed) != nullptr) return absl::OkStatus();
    // In stock TensorFlow, nodes of two models may have the same name, so the name of the resource has all that differs.
    uint64_t print = tensorflow::Hash64(tensorflow::SummarizeAttrs(def()));
    for (const tensorflow::Tensor* weight : weights) {
      const std::string shape = weight->shape().DebugString();
      print = tensorflow::Hash64(shape.data(), shape.size(), print);
      print = tensorflow::Hash64(weight->tensor_data().data(), weight->tensor_data().size(), print);
    }
    Resource* found = nullptr;
    const absl::Status status = resources->LookupOrCreate<Resource>(
        "recprocessor_packed", absl::StrCat(name(), "/", absl::Hex(print)), &found, [&](Resource** created) {
          std::unique_ptr<T> object;
          if (absl::Status made = Make(weights, &object); !made.ok()) return made;
          *created = new Resource(std::move(object));
          return absl::OkStatus();
        });
    if (!status.ok()) return status;
    resource_.reset(found);
    print_ = print;
    made_.store(found->object(), std::memory_order_release);
    return absl::OkStatus();
  }

  class Resource : public tensorflow::ResourceBase {
   public:
    explicit Resource(std::unique_ptr<const T> object) : object_(std::move(object)) {}
    const T* object() const { return object_.get(); }
    std::string DebugString() const override { return "what a kernel made of its weights"; }

   private:
    const std::unique_ptr<const T> object_;
  };

  size_t first_ = 0, count_ = 0;
  uint64_t print_ = 0;
  LiveWeights live_;
  std::mutex mutex_;
  tensorflow::core::RefCountPtr<Resource> resource_;
  std::atomic<const T*> made_{nullptr};
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_WEIGHTED_KERNEL_H_
