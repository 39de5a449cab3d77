// SPDX-License-Identifier: Apache-2.0
// The formulas of a live model: a TensorFlow graph from source variables to what kernels read.
#ifndef PROCESSOR_LIVE_FORMULA_GRAPH_H_
#define PROCESSOR_LIVE_FORMULA_GRAPH_H_

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "tensorflow/core/framework/tensor.h"
#include "tensorflow/core/public/session.h"

namespace processor {

/// Owns a session, which computes on the calling thread. Any thread may call.
class FormulaGraph {
 public:
  /// Reads a GraphDef with so many formulas and variables. \return errors that name the file.
  static absl::Status Open(const std::string& path, size_t formulas, size_t variables,
                           std::unique_ptr<FormulaGraph>* graph);
  ~FormulaGraph();
  FormulaGraph(const FormulaGraph&) = delete;
  FormulaGraph& operator=(const FormulaGraph&) = delete;

  /// The value of a source variable that was fed; of those that were not, the graph has the value of epoch 0.
  struct Feed {
    int variable;
    tensorflow::Tensor value;
  };

  /// Computes a formula. \return INVALID_ARGUMENT if it is not in the graph, or what TensorFlow returns.
  absl::Status Formula(int number, const std::vector<Feed>& feeds, tensorflow::Tensor* value);
  /// Returns a source variable at the first epoch.
  absl::Status Variable(int number, tensorflow::Tensor* value);
  /// Returns formula `number`, or the variable, at the first epoch; it is computed once, and lives as long as this object.
  /// Takes no lock later.
  absl::Status AtFirstEpoch(bool formula, int number, const tensorflow::Tensor** value);

 private:
  FormulaGraph(size_t formulas, size_t variables) : num_formulas_(formulas), first_values_(formulas + variables) {}
  absl::Status Run(const std::vector<Feed>& feeds, const std::string& node, tensorflow::Tensor* value);

  std::string path_;
  std::unique_ptr<tensorflow::Session> session_;
  const size_t num_formulas_;
  std::mutex mutex_;  // of those that compute the values of the first epoch
  std::vector<std::atomic<const tensorflow::Tensor*>> first_values_;  // formulas, then variables
};

}  // namespace processor

#endif  // PROCESSOR_LIVE_FORMULA_GRAPH_H_
