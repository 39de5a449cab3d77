// SPDX-License-Identifier: Apache-2.0
// What a kernel makes of its weights at the epochs of a live model.
#ifndef PROCESSOR_KERNELS_LIVE_WEIGHTS_H_
#define PROCESSOR_KERNELS_LIVE_WEIGHTS_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "src/live/epoch_view.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/tensor.h"

namespace processor {

/// A kernel owns one. What `make` uses must live until Forget() or the destructor. Any thread may call.
class LiveWeights {
 public:
  using Weights = std::vector<const tensorflow::Tensor*>;
  /// Makes the object of weights, which it may copy but not keep. `precision`: EpochView::precision().
  using Make = std::function<absl::Status(const Weights& weights, const std::string& precision,
                                          std::shared_ptr<const void>* object)>;

  LiveWeights() = default;
  ~LiveWeights() { Forget(); }
  LiveWeights(const LiveWeights&) = delete;
  LiveWeights& operator=(const LiveWeights&) = delete;

  /// Reads the attributes `num_views` and `formulas`; of `count` weights, the first is input `first`. `has_precision`:
  /// whether `make` minds the precision.
  absl::Status Read(tensorflow::OpKernelConstruction* context, size_t first, size_t count, bool has_precision,
                    Make make);

  /// Ends all calls of `make`.
  void Forget();

  /// Returns the object at the epoch of the request, which lives as long as its view; null if the weights are the inputs.
  /// `print` tells kernels apart that have the same name but make something else.
  absl::Status Find(tensorflow::OpKernelContext* context, uint64_t print, const void** object);

 private:
  // What is known of one live model.
  struct Known {
    std::shared_ptr<WeightSlots> slots;
    std::vector<int> formulas;  // [weights], -1: never changes
    int slot = -1;
  };

  absl::Status Learn(tensorflow::OpKernelContext* context, const EpochView& view, uint64_t print, const Known** known);

  size_t first_ = 0, count_ = 0;
  bool has_precision_ = false;
  bool has_view_ = false;
  std::string node_;
  std::vector<std::string> formulas_;
  Make make_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<const Known>> all_known_;  // the last one counts
  std::atomic<const Known*> known_{nullptr};
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_LIVE_WEIGHTS_H_
