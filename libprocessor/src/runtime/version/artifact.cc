// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/version/artifact.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"
#include "src/kernels/precision.h"

namespace processor {
namespace {

namespace fs = std::filesystem;
using Json = nlohmann::json;
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

std::string TextOf(const Json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

// Reads the permission of bf16, which is in `precision` itself or, where int8 is permitted, in its `without_int8`.
absl::Status ReadWider(const fs::path& path, const Json& wider, Artifact* artifact) {
  const std::string permitted = TextOf(wider, "permitted");
  if (permitted != "bf16" && permitted != "fp32") {
    return Damaged(path, absl::StrCat("a permitted precision '", permitted, "'"), "bf16 or fp32");
  }
  artifact->bf16 = permitted == "bf16";
  artifact->reason = TextOf(wider, "reason");
  return absl::OkStatus();
}

double NumberOf(const Json& object, const char* key, double otherwise) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number() ? found->get<double>() : otherwise;
}

// Finds the certificate in an object; null if it was not measured.
absl::Status FindCertificate(const fs::path& path, const Json& object, const Json** certificate) {
  *certificate = nullptr;
  const auto found = object.find("certificate");
  if (found == object.end() || found->is_null()) return absl::OkStatus();
  if (!found->is_object()) return Damaged(path, "a 'certificate' that is no object", "one");
  *certificate = &*found;
  return absl::OkStatus();
}

double LimitOf(const Json& certificate, double otherwise) {
  const double limit = NumberOf(certificate, "limit", otherwise);
  const auto auc = certificate.find("auc_loss");
  const bool by_auc = auc != certificate.end() && auc->is_number();
  return by_auc ? limit + NumberOf(certificate, "rank_correlation_loss", 0) : limit;
}

absl::Status ReadPrecision(const fs::path& path, const Json& precision, Artifact* artifact) {
  if (!precision.is_object()) return Damaged(path, "a 'precision' that is no object", "one");
  const Json* certificate = nullptr;
  if (absl::Status s = FindCertificate(path, precision, &certificate); !s.ok()) return s;
  if (certificate != nullptr) {
    artifact->bf16_arithmetic = TextOf(*certificate, "arithmetic") != "bf16 weights";
    artifact->bf16_limit = LimitOf(*certificate, artifact->bf16_limit);
  }
  const auto int8 = precision.find("int8");
  if (int8 != precision.end() && !int8->is_null()) {
    if (!int8->is_object()) return Damaged(path, "an 'int8' that is no object", "one");
    artifact->int8_reason = TextOf(*int8, "reason");
    if (absl::Status s = FindCertificate(path, *int8, &certificate); !s.ok()) return s;
    if (certificate != nullptr) artifact->int8_limit = LimitOf(*certificate, artifact->int8_limit);
    const auto kept = int8->find("kept");
    if (kept != int8->end() && kept->is_array()) artifact->kept_layers = static_cast<int>(kept->size());
  }
  artifact->int8 = TextOf(precision, "permitted") == "int8";
  if (!artifact->int8) return ReadWider(path, precision, artifact);
  const auto without = precision.find("without_int8");
  if (without == precision.end() || !without->is_object()) {
    return Damaged(path, "int8 without an object 'without_int8'", "one");
  }
  return ReadWider(path, *without, artifact);
}

// What towers compute with, what is written into those whose precision is not fixed, and why.
struct PrecisionUse {
  Precision precision = Precision::kFloat32;
  const char* attribute = "fp32";
  std::string reason;
  bool forced = false;
};

const char* Computes(Precision precision) {
  return precision == Precision::kBfloat16 ? "the CPU computes with bf16"
                                           : "the CPU gains nothing by bf16 arithmetic: bf16 weights, fp32 arithmetic";
}

// Chooses what the certificate of bf16 permits.
PrecisionUse ChooseWider(const Artifact& artifact, const CpuFeatures& cpu) {
  PrecisionUse use;
  Precision on_cpu = Precision::kFloat32;
  if (!artifact.fused) {
    use.reason = "the model has no manifest with a certificate for bf16";
  } else if (!artifact.bf16) {
    use.reason = artifact.reason;
  } else if (const absl::Status s = ChoosePrecision("bf16", cpu, &on_cpu); !s.ok()) {
    use.reason = absl::StrCat("the certificate permits bf16, but ", s.message());
  } else if (on_cpu == Precision::kBfloat16 && !artifact.bf16_arithmetic) {
    use.precision = Precision::kBfloat16Weights;
    use.attribute = "bf16_weights";
    use.reason =
        "the certificate permits bf16 weights: it was measured on a CPU without bf16 arithmetic; fuse the model on "
        "this one to have its arithmetic measured";
  } else {
    use.precision = on_cpu;
    use.attribute = "bf16";
    use.reason = absl::StrCat("the certificate permits bf16; ", Computes(on_cpu));
  }
  return use;
}

PrecisionUse ChooseInt8(const Artifact& artifact, PrecisionLimit limit, bool forced, const CpuFeatures& cpu) {
  if (limit == PrecisionLimit::kAuto && HasInt8(cpu)) {
    std::string reason = forced ? "the model was fused with --precision int8" : "the certificate permits int8";
    if (artifact.kept_layers > 0) {
      absl::StrAppend(&reason, ", with ", artifact.kept_layers, artifact.kept_layers > 1 ? " layers" : " layer",
                      " in more precise arithmetic");
    }
    return {Precision::kInt8, "int8", absl::StrCat(reason, "; the CPU computes with int8"), forced};
  }
  PrecisionUse use = ChooseWider(artifact, cpu);
  absl::StrAppend(
      &use.reason, "; int8 is not used, because ",
      limit == PrecisionLimit::kAuto ? "the CPU has no int8 arithmetic" : "the configuration asks for bf16");
  return use;
}

absl::Status ChooseUse(const Artifact& artifact, PrecisionLimit limit, const std::set<std::string>& written,
                       const CpuFeatures& cpu, PrecisionUse* use) {
  const bool automatic = written.count("auto") > 0, forced_int8 = written.count("int8") > 0;
  if (limit == PrecisionLimit::kFloat32) {
    use->reason = "the configuration asks for fp32";
  } else if (written.count("bf16") > 0) {
    if (const absl::Status s = ChoosePrecision("bf16", cpu, &use->precision); !s.ok()) {
      return absl::FailedPreconditionError(
          absl::StrCat("the model was fused with --precision bf16: ", s.message(),
                       "; fuse it with --precision auto, or set \"precision\": \"fp32\" in the configuration"));
    }
    use->reason = absl::StrCat("the model was fused with --precision bf16; ", Computes(use->precision));
    use->forced = true;
  } else if (forced_int8 || (automatic && artifact.int8)) {
    *use = ChooseInt8(artifact, limit, forced_int8, cpu);
  } else if (!automatic) {
    use->reason = artifact.reason.empty() ? "the model was fused with fp32" : artifact.reason;
  } else {
    *use = ChooseWider(artifact, cpu);
    if (!artifact.int8_reason.empty()) absl::StrAppend(&use->reason, "; int8: ", artifact.int8_reason);
  }
  return absl::OkStatus();
}

// Lists what the certificates permit, if that is why the precision is used.
std::vector<PermittedPrecision> PermittedPrecisions(const Artifact& artifact, PrecisionUse use,
                                                    const CpuFeatures& cpu) {
  std::vector<PermittedPrecision> permitted;
  if (use.precision == Precision::kInt8) {
    permitted.push_back({use.attribute, PrecisionName(use.precision), artifact.int8_limit});
    use = ChooseWider(artifact, cpu);
  }
  if (use.precision != Precision::kFloat32) {
    permitted.push_back({use.attribute, PrecisionName(use.precision), artifact.bf16_limit});
  }
  return permitted;
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
  const Json manifest = Json::parse(text, nullptr, false);
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
  return ReadPrecision(path, *precision, artifact);
}

absl::Status SetPrecision(const Artifact& artifact, PrecisionLimit limit, GraphDef* graph, PrecisionChoice* choice,
                          const CpuFeatures& cpu) {
  std::set<std::string> written;
  ForEachMutableNode(graph, [&](NodeDef* node) {
    if (node->op() == kTower) written.insert(PrecisionOf(*node));
  });
  if (written.empty()) return absl::OkStatus();
  PrecisionUse use;
  if (absl::Status s = ChooseUse(artifact, limit, written, cpu, &use); !s.ok()) return s;
  choice->precision = PrecisionName(use.precision);
  choice->reason = std::move(use.reason);
  choice->forced = use.forced;
  if (!choice->forced) choice->permitted = PermittedPrecisions(artifact, use, cpu);
  ForEachMutableNode(graph, [&](NodeDef* node) {
    if (node->op() != kTower) return;
    const std::string was = PrecisionOf(*node);
    if (limit == PrecisionLimit::kFloat32 || was == "auto" || was == "int8") {
      (*node->mutable_attr())[kPrecision].set_s(use.attribute);
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
