// SPDX-License-Identifier: Apache-2.0
// Does each row of a model's outputs depend on its own row of the inputs alone? Found out from the graph, when it is loaded.
//
// Rows are followed from the inputs of a signature to its outputs, functions included, by rules of ops (row_rules.h). Sizes
// that depend on the number of rows are known by inferring all shapes twice, for two numbers of rows. What no rule is known
// for is not proved; nothing is taken for proved that is not.
#ifndef PROCESSOR_RUNTIME_ROWS_ROW_PROOF_H_
#define PROCESSOR_RUNTIME_ROWS_ROW_PROOF_H_

#include <string>
#include <vector>

#include "src/base/signature.h"
#include "tensorflow/core/protobuf/meta_graph.pb.h"

namespace processor {

/// What the graph says of an output.
struct RowProof {
  enum class Finding {
    kIndependent,  // row i of it depends on row i of the inputs alone
    kUnproved,     // it may; nothing but trying shows
    kDependent,    // a node combines rows, or it is no tensor of rows
  };
  Finding finding = Finding::kUnproved;
  std::string reason;  // why it is not independent, naming the node
};

/// The findings for all outputs of a signature. `meta_graph`: as it is loaded, with the ops that TensorFlow knows.
std::vector<RowProof> ProveRows(const tensorflow::MetaGraphDef& meta_graph, const Signature& signature);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_ROWS_ROW_PROOF_H_
