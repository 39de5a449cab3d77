// SPDX-License-Identifier: Apache-2.0
// Statistics of a model's batches. The batched requests of the model own them.
#ifndef PROCESSOR_RUNTIME_BATCHING_BATCH_STATS_H_
#define PROCESSOR_RUNTIME_BATCHING_BATCH_STATS_H_

#include <atomic>
#include <cstdint>

#include "src/runtime/stats/size_histogram.h"

namespace processor {

/// Counts runs of requests that were batched or could have been. Any thread may record and read.
struct BatchStats {
  void Record(int64_t rows_of_run, int64_t requests_of_run) {
    rows.Record(rows_of_run);
    requests.Record(requests_of_run);
  }

  SizeHistogram rows;                 // of a run; 0 for one whose requests have none
  SizeHistogram requests;             // of a run
  std::atomic<uint64_t> repeated{0};  // runs whose requests were run one by one as well
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_BATCHING_BATCH_STATS_H_
