// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/version/artifact.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "src/kernels/precision.h"

namespace processor {
namespace {

namespace fs = std::filesystem;
using tensorflow::GraphDef;
using tensorflow::NodeDef;

constexpr char kTower[] = "RecDenseTower";
constexpr char kPrecision[] = "precision";

template <typename Graph, typename Visit>
void ForEachMutableNode(Graph* graph, const Visit& visit) {
  for (auto& node : *graph->mutable_node()) visit(&node);
  for (auto& function : *graph->mutable_library()->mutable_function()) {
    for (auto& node : *function.mutable_node_def()) visit(&node);
  }
}

std::string PrecisionOf(const NodeDef& node) {
  const auto attr = node.attr().find(kPrecision);
  return attr == node.attr().end() || attr->second.s().empty() ? "auto" : attr->second.s();
}

absl::Status Damaged(const fs::path& path, std::string_view found, std::string_view expected) {
  return absl::DataLossError(absl::StrCat("manifest '", path.string(), "': ", found, " found, expected ", expected,
                                          "; write the artifact again with `graph-tools fuse`"));
}

}  // namespace

bool UsesOurOps(const GraphDef& graph) {
  for (const NodeDef& node : graph.node()) {
    if (absl::StartsWith(node.op(), "Rec") && !absl::StartsWith(node.op(), "Recv") &&
        !absl::StartsWith(node.op(), "Reciprocal") && !absl::StartsWith(node.op(), "RecordInput")) {
      return true;
    }
  }
  return false;
}

absl::Status ReadArtifact(const std::string& dir, Artifact* artifact) {
  const fs::path path = fs::path(dir) / "assets.extra" / "recprocessor" / "manifest.json";
  std::error_code error;
  if (!fs::exists(path, error)) return absl::OkStatus();
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  const nlohmann::json manifest = nlohmann::json::parse(text, nullptr, false);
  if (!file || !manifest.is_object()) return Damaged(path, "no JSON object", "one");
  const auto fused = manifest.find("fused");
  if (fused == manifest.end()) return absl::OkStatus();
  if (!fused->is_boolean()) return Damaged(path, "a 'fused' that is no boolean", "true or false");
  artifact->fused = fused->get<bool>();

  const auto requires_ = manifest.find("requires");
  if (requires_ != manifest.end()) {
    if (!requires_->is_object()) return Damaged(path, "a 'requires' that is no object", "one");
    const auto ops = requires_->find("recprocessor_ops");
    if (ops != requires_->end()) {
      if (!ops->is_number_integer()) return Damaged(path, "a 'recprocessor_ops' that is no integer", "one");
      if (ops->get<int64_t>() > kOpsVersion) {
        return absl::FailedPreconditionError(
            absl::StrCat("manifest '", path.string(), "': ops of version ", ops->dump(), " found, expected at most ",
                         kOpsVersion, "; serve it with a newer libprocessor or fuse it with this one's graph-tools"));
      }
    }
  }
  const auto precision = manifest.find(kPrecision);
  if (precision == manifest.end() || precision->is_null()) return absl::OkStatus();
  if (!precision->is_object()) return Damaged(path, "a 'precision' that is no object", "one");
  const std::string permitted =
      precision->contains("permitted") && (*precision)["permitted"].is_string() ? (*precision)["permitted"] : "";
  if (permitted != "bf16" && permitted != "fp32") {
    return Damaged(path, absl::StrCat("a permitted precision '", permitted, "'"), "bf16 or fp32");
  }
  artifact->bf16 = permitted == "bf16";
  const auto certificate = precision->find("certificate");
  if (certificate != precision->end() && !certificate->is_null()) {
    if (!certificate->is_object()) return Damaged(path, "a 'certificate' that is no object", "one");
    artifact->bf16_arithmetic = certificate->value("arithmetic", nlohmann::json()) != "bf16 weights";
  }
  if (precision->contains("reason") && (*precision)["reason"].is_string()) artifact->reason = (*precision)["reason"];
  return absl::OkStatus();
}

absl::Status SetPrecision(const Artifact& artifact, PrecisionLimit limit, GraphDef* graph, PrecisionChoice* choice,
                          const CpuFeatures& cpu) {
  std::set<std::string> written;
  ForEachMutableNode(graph, [&](NodeDef* node) {
    if (node->op() == kTower) written.insert(PrecisionOf(*node));
  });
  if (written.empty()) return absl::OkStatus();

  Precision on_cpu = Precision::kFloat32;
  const absl::Status possible = ChoosePrecision("bf16", cpu, &on_cpu);
  const std::string computes = on_cpu == Precision::kBfloat16
                                   ? "the CPU computes with bf16"
                                   : "the CPU gains nothing by bf16 arithmetic: bf16 weights, fp32 arithmetic";
  const char* for_auto = "fp32";
  bool bf16 = false;
  if (limit == PrecisionLimit::kFloat32) {
    choice->reason = "the configuration asks for fp32";
  } else if (written.count("bf16") > 0) {
    if (!possible.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the model was fused with --precision bf16: ", possible.message(),
                       "; fuse it with --precision auto, or set \"precision\": \"fp32\" in the configuration"));
    }
    bf16 = true;
    choice->reason = absl::StrCat("the model was fused with --precision bf16; ", computes);
  } else if (written.count("auto") == 0) {
    choice->reason = artifact.reason.empty() ? "the model was fused with fp32" : artifact.reason;
  } else if (!artifact.fused) {
    choice->reason = "the model has no manifest with a certificate for bf16";
  } else if (!artifact.bf16) {
    choice->reason = artifact.reason;
  } else if (!possible.ok()) {
    choice->reason = absl::StrCat("the certificate permits bf16, but ", possible.message());
  } else if (on_cpu == Precision::kBfloat16 && !artifact.bf16_arithmetic) {
    bf16 = true;
    on_cpu = Precision::kBfloat16Weights;
    for_auto = "bf16_weights";
    choice->reason =
        "the certificate permits bf16 weights: it was measured on a CPU without bf16 arithmetic; fuse the model on "
        "this "
        "one to have its arithmetic measured";
  } else {
    bf16 = true;
    for_auto = "bf16";
    choice->reason = absl::StrCat("the certificate permits bf16; ", computes);
  }
  choice->precision = bf16 ? PrecisionName(on_cpu) : "fp32";
  ForEachMutableNode(graph, [&](NodeDef* node) {
    if (node->op() != kTower) return;
    const std::string was = PrecisionOf(*node);
    if (limit == PrecisionLimit::kFloat32) {
      (*node->mutable_attr())[kPrecision].set_s("fp32");
    } else if (was == "auto") {
      (*node->mutable_attr())[kPrecision].set_s(for_auto);
    }
  });
  return absl::OkStatus();
}

void SetMaxRows(int64_t max_rows, GraphDef* graph) {
  ForEachMutableNode(graph, [max_rows](NodeDef* node) {
    if (node->op() == "RecEmbeddingGroup") (*node->mutable_attr())["max_rows"].set_i(max_rows);
  });
}

}  // namespace processor
