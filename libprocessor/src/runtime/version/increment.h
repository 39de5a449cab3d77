// SPDX-License-Identifier: Apache-2.0
// Reads incremental checkpoints of DeepRec: what has changed since a full checkpoint.
#ifndef PROCESSOR_RUNTIME_VERSION_INCREMENT_H_
#define PROCESSOR_RUNTIME_VERSION_INCREMENT_H_

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/framework/graph.pb.h"
#include "tensorflow/core/framework/tensor.h"

namespace processor {

/// Adds what the nodes that restore a full checkpoint, whose prefix is `full`, would give had the changes of the
/// incremental one been in it, as feeds of their outputs. A tensor is in an increment as a whole, or by rows
/// (`<name>-sparse_incr_keys` and `-sparse_incr_values`); tensors that the graph does not restore are ignored.
/// \return INVALID_ARGUMENT or DATA_LOSS; the messages name the increment and the tensor.
absl::Status AddIncrement(const tensorflow::GraphDef& graph, const std::string& full, const std::string& increment,
                          std::vector<std::pair<std::string, tensorflow::Tensor>>* feeds);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_VERSION_INCREMENT_H_
