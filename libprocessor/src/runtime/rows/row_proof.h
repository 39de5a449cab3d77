// SPDX-License-Identifier: Apache-2.0
// Proves from the graph, when a model is loaded, that each row of its outputs depends on its own row of the inputs
// alone.
//
// Rows are followed from the inputs of a signature to its outputs, through functions, by rules for ops (row_rules.h).
// Sizes that depend on the number of rows are found by inferring all shapes twice, for two numbers of rows. Where no
// rule is known, nothing is proved.
#ifndef PROCESSOR_RUNTIME_ROWS_ROW_PROOF_H_
#define PROCESSOR_RUNTIME_ROWS_ROW_PROOF_H_

#include <string>
#include <vector>

#include "src/base/signature.h"
#include "tensorflow/core/protobuf/meta_graph.pb.h"

namespace processor {

/// What the graph proves about an output.
struct RowProof {
  enum class Finding {
    kIndependent,  // row i of it depends on row i of the inputs alone
    kUnproved,     // it may be independent; trials decide
    kDependent,    // a node combines rows, or the output is no tensor of rows
  };
  Finding finding = Finding::kUnproved;
  std::string reason;  // why it is not independent, naming the node
};

/// Returns the findings for all outputs of a signature. `meta_graph`: as loaded, with ops that TensorFlow has.
std::vector<RowProof> ProveRows(const tensorflow::MetaGraphDef& meta_graph, const Signature& signature);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_ROWS_ROW_PROOF_H_
