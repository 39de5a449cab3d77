// SPDX-License-Identifier: Apache-2.0
// What the ops of several tables share: their attributes, and running one job per table.
#ifndef ELASTIC_TRAINING_OPS_TABLE_LIST_H_
#define ELASTIC_TRAINING_OPS_TABLE_LIST_H_

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "src/pooling/pooling.h"
#include "tensorflow/core/framework/op_kernel.h"
#include "tensorflow/core/framework/shape_inference.h"

namespace elastic_training {

/// The attributes N, combiners and mask_zero.
struct TableList {
  absl::Status Read(tensorflow::OpKernelConstruction* context);

  int count = 0;
  std::vector<Combiner> combiners;
  std::vector<bool> mask_zero;
};

/// Runs `job(i)` for each of `count` tables, on the threads of the device if there is enough to do, and returns the first
/// error. `keys` is the number of keys of all tables.
absl::Status RunForTables(tensorflow::OpKernelContext* context, int count, int64_t keys,
                          const std::function<absl::Status(int)>& job);

/// Shapes of ElasticTableLookup.
absl::Status InferLookupShapes(tensorflow::shape_inference::InferenceContext* context);

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_OPS_TABLE_LIST_H_
