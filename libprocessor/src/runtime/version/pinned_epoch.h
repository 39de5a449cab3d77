// SPDX-License-Identifier: Apache-2.0
// The epoch of a live model that all runs of a request, or of a batch, read. It keeps that epoch as long as it exists.
#ifndef PROCESSOR_RUNTIME_VERSION_PINNED_EPOCH_H_
#define PROCESSOR_RUNTIME_VERSION_PINNED_EPOCH_H_

#include <cstdint>

#include "tensorflow/core/framework/tensor.h"

namespace processor {

struct PinnedEpoch {
  tensorflow::Tensor view;  // what RecPinView returns
  int64_t epoch = -1;       // -1: the model is not live
  int64_t knows_us = 0;     // as RequestTiming::knows_us

  /// The tensor that runs get; null if the model is not live.
  const tensorflow::Tensor* tensor() const { return epoch < 0 ? nullptr : &view; }
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_VERSION_PINNED_EPOCH_H_
