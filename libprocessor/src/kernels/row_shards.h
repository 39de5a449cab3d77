// SPDX-License-Identifier: Apache-2.0
// Distributes the rows of a batch over the threads of the device.
#ifndef PROCESSOR_KERNELS_ROW_SHARDS_H_
#define PROCESSOR_KERNELS_ROW_SHARDS_H_

#include <algorithm>
#include <cstdint>
#include <functional>
#include <vector>

#include "src/kernels/interruption.h"
#include "tensorflow/core/framework/device_base.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/util/work_sharder.h"

namespace processor {

/// The operations between two checks for cancellation: about a millisecond.
constexpr int64_t kOperationsPerLook = int64_t{1} << 23;
/// The most rows that a kernel computes at once; it may also use a divisor of it.
constexpr int64_t kRowsAtOnce = 64;

/// Calls `work(begin, end)` for parts of [0, rows), on the calling thread if it is alone or there is little work. It ends
/// early, and sets the status of the context to CANCELLED, if the step was cancelled.
///
/// `operations_per_row` is roughly the number of multiplications and additions of a row.
template <typename Work>
void ForRows(tensorflow::OpKernelContext* context, int64_t rows, int64_t operations_per_row, const Work& work_on) {
  const Interruption interruption(context);
  const int64_t looked =
      std::max<int64_t>(kOperationsPerLook / std::max<int64_t>(operations_per_row, 1) / kRowsAtOnce, 1) * kRowsAtOnce;
  const auto work = [&](int64_t begin, int64_t end) {
    for (; end - begin > looked && !interruption.requested(); begin += looked) work_on(begin, begin + looked);
    if (end - begin <= looked) work_on(begin, end);
  };
  const auto* threads = context->device()->tensorflow_cpu_worker_threads();
  // Shard() expects costs in cycles; one cycle does about this many operations.
  const int64_t cost = std::max<int64_t>(1, operations_per_row / 16);
  if (threads == nullptr || threads->num_threads <= 1 || rows <= 1) {
    if (rows > 0) work(int64_t{0}, rows);
  } else {
    tensorflow::Shard(threads->num_threads, threads->workers, rows, cost, std::cref(work));
  }
  if (rows > looked) {
    if (absl::Status s = interruption.status(); !s.ok()) context->SetStatus(s);
  }
}

/// Returns memory of the calling thread for `size` floats, which is kept for the next call.
inline float* ThreadScratch(size_t size) {
  thread_local std::vector<float> scratch;
  if (scratch.size() < size) scratch.resize(size);
  return scratch.data();
}

}  // namespace processor

#endif  // PROCESSOR_KERNELS_ROW_SHARDS_H_
