// SPDX-License-Identifier: Apache-2.0
// Reads the manifest that `graph-tools fuse` writes beside a model's graph, and applies it when the model is loaded.
#ifndef PROCESSOR_RUNTIME_VERSION_ARTIFACT_H_
#define PROCESSOR_RUNTIME_VERSION_ARTIFACT_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "src/kernels/precision.h"
#include "src/runtime/config/model_config.h"
#include "tensorflow/core/framework/graph.pb.h"

namespace processor {

/// The version of our ops and their plans that this library runs.
constexpr int kOpsVersion = 4;

/// The part of the manifest that matters when a model is loaded.
struct Artifact {
  bool fused = false;           // made by `graph-tools fuse`
  bool int8 = false;            // its certificate permits int8
  int kept_layers = 0;          // and that many layers that are more precise
  std::string int8_reason;      // why int8 is not permitted, as a sentence; empty if it was not considered
  bool bf16 = false;            // its certificate permits bf16
  bool bf16_arithmetic = true;  // and was measured with bf16 products, or else with weights rounded to bf16 alone
  std::string reason;           // the result of the certificate of bf16, as a sentence
  // The losses of rank correlation that the certificates permit. One that was measured by AUC permits that loss beside the
  // loss of rank correlation that the model had then.
  double int8_limit = 1e-3, bf16_limit = 1e-3;
};

/// Whether the graph uses our ops.
bool UsesOurOps(const tensorflow::GraphDef& graph);

/// Reads assets.extra/recprocessor/manifest.json; a model without one is not fused.
/// \return DATA_LOSS for one that is not valid, FAILED_PRECONDITION if it needs newer ops than the library has; both
///         name the file.
absl::Status ReadArtifact(const std::string& dir, Artifact* artifact);

/// A precision that a certificate permits.
struct PermittedPrecision {
  std::string attribute;  // of towers: "int8", "bf16" or "bf16_weights"
  std::string name;       // as in PrecisionChoice
  double limit = 0;       // loss of rank correlation
};

/// The precision that towers compute with, and why.
struct PrecisionChoice {
  std::string precision;  // "fp32", "bf16", "bf16 weights" or "int8"; empty: the graph has no tower
  std::string reason;
  bool forced = false;  // whatever it loses
  /// If it follows from a certificate: what the towers use, and what they may use instead. Less precise ones come first.
  std::vector<PermittedPrecision> permitted;
};

/// Sets the precision of towers where it is "auto" to what the artifact permits, the CPU supports and the configuration
/// allows: bf16 products only if the certificate was measured with them. Where int8 is permitted or forced but cannot be
/// used, towers compute with what the certificate of bf16 permits.
/// \return FAILED_PRECONDITION if bf16 is forced and the CPU cannot compute with it.
absl::Status SetPrecision(const Artifact& artifact, PrecisionLimit limit, tensorflow::GraphDef* graph,
                          PrecisionChoice* choice, const CpuFeatures& cpu = ThisCpu());

/// Sets in lookups how many rows a request may have, since a sparse feature can name any number of them.
void SetMaxRows(int64_t max_rows, tensorflow::GraphDef* graph);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_VERSION_ARTIFACT_H_
