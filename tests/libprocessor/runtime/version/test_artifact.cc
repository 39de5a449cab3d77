// SPDX-License-Identifier: Apache-2.0
// The manifest of a fused model, and the precision that follows from it.
#include "src/runtime/version/artifact.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "src/kernels/cpu_features.h"
#include "temporary_folder.h"

namespace processor {
namespace {

class ArtifactTest : public testing::Test {
 protected:
  void Write(const std::string& manifest) { folder_.Write("assets.extra/recprocessor/manifest.json", manifest); }

  absl::Status Read() {
    artifact_ = Artifact();
    return ReadArtifact(folder_.path(), &artifact_);
  }

  const TemporaryFolder folder_;
  Artifact artifact_;
};

tensorflow::GraphDef Tower(const std::string& precision) {
  tensorflow::GraphDef graph;
  tensorflow::NodeDef* node = graph.add_node();
  node->set_name("tower");
  node->set_op("RecDenseTower");
  if (!precision.empty()) (*node->mutable_attr())["precision"].set_s(precision);
  return graph;
}

std::string Written(const tensorflow::GraphDef& graph) { return graph.node(0).attr().at("precision").s(); }

TEST_F(ArtifactTest, ModelWithoutManifestIsNotFused) {
  EXPECT_TRUE(Read().ok());
  EXPECT_FALSE(artifact_.fused);
  Write(R"({"passes": []})");  // what `cut` writes
  EXPECT_TRUE(Read().ok());
  EXPECT_FALSE(artifact_.fused);
}

TEST_F(ArtifactTest, ReadsManifestOfFuse) {
  Write(R"({"fused": true, "requires": {"recprocessor_ops": 1},
            "precision": {"permitted": "bf16", "reason": "rank correlation lost 1e-6"}})");
  ASSERT_TRUE(Read().ok());
  EXPECT_TRUE(artifact_.fused);
  EXPECT_TRUE(artifact_.bf16);
  EXPECT_EQ(artifact_.reason, "rank correlation lost 1e-6");
}

TEST_F(ArtifactTest, NewerOpsAreRefused) {
  Write(R"({"fused": true, "requires": {"recprocessor_ops": 5}})");
  const absl::Status status = Read();
  EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_NE(status.message().find("manifest.json"), std::string::npos) << status;
  EXPECT_NE(status.message().find("newer libprocessor"), std::string::npos) << status;
}

TEST_F(ArtifactTest, ErrorsNameDamagedManifest) {
  for (const char* text : {"", "[]", "{\"fused\": tru", R"({"fused": 1})", R"({"fused": true, "requires": []})",
                           R"({"fused": true, "requires": {"recprocessor_ops": "1"}})",
                           R"({"fused": true, "precision": 3})", R"({"fused": true, "precision": {}})",
                           R"({"fused": true, "precision": {"permitted": "bf16", "certificate": 1}})",
                           R"({"fused": true, "precision": {"permitted": "fp8"}})"}) {
    Write(text);
    const absl::Status status = Read();
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << text << ": " << status;
    EXPECT_NE(status.message().find("manifest.json"), std::string::npos) << status;
  }
}

TEST_F(ArtifactTest, CertificateDecidesAutoPrecision) {
  if (ThisCpu().isa == Isa::kPlain) GTEST_SKIP() << "a CPU without AVX2 computes in fp32 always";
  for (const bool permitted : {false, true}) {
    Artifact artifact;
    artifact.fused = true;
    artifact.bf16 = permitted;
    artifact.reason = "measured";
    tensorflow::GraphDef graph = Tower("auto");
    PrecisionChoice choice;
    ASSERT_TRUE(SetPrecision(artifact, PrecisionLimit::kAuto, &graph, &choice).ok());
    EXPECT_EQ(Written(graph), permitted ? "bf16" : "fp32");
    EXPECT_EQ(choice.precision == "fp32", !permitted);
    EXPECT_FALSE(choice.reason.empty());
  }
}

TEST_F(ArtifactTest, UsesArithmeticOfCertificate) {
  CpuFeatures cpu;
  cpu.isa = Isa::kAvx512;
  cpu.amx_bf16 = true;
  for (const bool arithmetic : {false, true}) {
    Write(R"({"fused": true, "precision": {"permitted": "bf16", "certificate": {"arithmetic": ")" +
          std::string(arithmetic ? "bf16" : "bf16 weights") + "\"}}}");
    ASSERT_TRUE(Read().ok());
    tensorflow::GraphDef graph = Tower("auto");
    PrecisionChoice choice;
    ASSERT_TRUE(SetPrecision(artifact_, PrecisionLimit::kAuto, &graph, &choice, cpu).ok());
    EXPECT_EQ(Written(graph), arithmetic ? "bf16" : "bf16_weights");
    EXPECT_EQ(choice.precision, arithmetic ? "bf16" : "bf16 weights");
    // What somebody forced was not measured by anybody.
    graph = Tower("bf16");
    ASSERT_TRUE(SetPrecision(artifact_, PrecisionLimit::kAuto, &graph, &choice, cpu).ok());
    EXPECT_EQ(choice.precision, "bf16");
  }
}

TEST_F(ArtifactTest, Int8NeedsPermissionAndInstructions) {
  CpuFeatures cpu;
  cpu.isa = Isa::kAvx512;
  Write(R"({"fused": true, "requires": {"recprocessor_ops": 3},
            "precision": {"permitted": "int8", "int8": {"permitted": true, "reason": "measured", "kept": [{}]},
                          "without_int8": {"permitted": "bf16", "reason": "measured"}}})");
  ASSERT_TRUE(Read().ok());
  for (const char* written : {"auto", "int8"}) {
    for (const bool vnni : {false, true}) {
      cpu.avx512_vnni = vnni;
      tensorflow::GraphDef graph = Tower(written);
      PrecisionChoice choice;
      ASSERT_TRUE(SetPrecision(artifact_, PrecisionLimit::kAuto, &graph, &choice, cpu).ok());
      EXPECT_EQ(Written(graph), vnni ? "int8" : "bf16");
      EXPECT_EQ(choice.reason.find("no int8 arithmetic") == std::string::npos, vnni) << choice.reason;
      EXPECT_EQ(choice.reason.find("1 layer ") != std::string::npos, vnni) << choice.reason;
    }
    tensorflow::GraphDef graph = Tower(written);
    PrecisionChoice choice;
    ASSERT_TRUE(SetPrecision(artifact_, PrecisionLimit::kBfloat16, &graph, &choice, cpu).ok());
    EXPECT_EQ(Written(graph), "bf16");
    EXPECT_NE(choice.reason.find("the configuration asks for bf16"), std::string::npos) << choice.reason;
  }
}

TEST_F(ArtifactTest, CertificatesTellWhatToUseInsteadAndWhatMayBeLost) {
  CpuFeatures cpu;
  cpu.isa = Isa::kAvx512;
  cpu.avx512_vnni = true;
  Write(R"({"fused": true,
            "precision": {"permitted": "int8", "without_int8": {"permitted": "bf16", "reason": "measured"},
                          "certificate": {"limit": 0.001, "rank_correlation_loss": 0.25, "auc_loss": null},
                          "int8": {"reason": "measured", "certificate": {"limit": 0.002, "rank_correlation_loss": 0.25,
                                                                         "auc_loss": 0.0004}}}})");
  ASSERT_TRUE(Read().ok());
  const auto permitted = [&](const char* written, PrecisionLimit limit) {
    tensorflow::GraphDef graph = Tower(written);
    PrecisionChoice choice;
    EXPECT_TRUE(SetPrecision(artifact_, limit, &graph, &choice, cpu).ok());
    EXPECT_EQ(choice.forced, choice.permitted.empty() && choice.precision != "fp32");
    std::vector<std::string> found;
    for (const PermittedPrecision& each : choice.permitted) {
      found.push_back(absl::StrCat(each.attribute, ", ", each.name, ", ", each.limit));
    }
    return found;
  };
  using Texts = std::vector<std::string>;
  const std::string bf16 = "bf16, bf16 weights, 0.001";
  // A certificate by AUC says nothing of a small loss of rank correlation; this one had 0.25.
  EXPECT_EQ(permitted("auto", PrecisionLimit::kAuto), (Texts{"int8, int8, 0.252", bf16}));
  EXPECT_EQ(permitted("auto", PrecisionLimit::kBfloat16), Texts{bf16});
  EXPECT_EQ(permitted("auto", PrecisionLimit::kFloat32), Texts());
  EXPECT_EQ(permitted("int8", PrecisionLimit::kAuto), Texts());
  EXPECT_EQ(permitted("bf16", PrecisionLimit::kAuto), Texts());
}

TEST_F(ArtifactTest, ReasonSaysWhyInt8IsNotPermitted) {
  Write(R"({"fused": true, "precision": {"permitted": "bf16", "int8": {"permitted": false, "reason": "loses 0.1"}}})");
  ASSERT_TRUE(Read().ok());
  CpuFeatures cpu;
  cpu.isa = Isa::kAvx512;
  cpu.avx512_vnni = true;
  tensorflow::GraphDef graph = Tower("auto");
  PrecisionChoice choice;
  ASSERT_TRUE(SetPrecision(artifact_, PrecisionLimit::kAuto, &graph, &choice, cpu).ok());
  EXPECT_EQ(Written(graph), "bf16");
  EXPECT_NE(choice.reason.find("int8: loses 0.1"), std::string::npos) << choice.reason;
}

TEST_F(ArtifactTest, PrecisionIsFloat32WithoutCertificate) {
  tensorflow::GraphDef graph = Tower("");
  PrecisionChoice choice;
  ASSERT_TRUE(SetPrecision(Artifact(), PrecisionLimit::kAuto, &graph, &choice).ok());
  EXPECT_EQ(Written(graph), "fp32");
  EXPECT_EQ(choice.precision, "fp32");
}

TEST_F(ArtifactTest, ConfigurationOverridesCertificate) {
  for (const char* precision : {"auto", "bf16", "fp32"}) {
    Artifact artifact;
    artifact.fused = artifact.bf16 = true;
    tensorflow::GraphDef graph = Tower(precision);
    PrecisionChoice choice;
    ASSERT_TRUE(SetPrecision(artifact, PrecisionLimit::kFloat32, &graph, &choice).ok());
    EXPECT_EQ(Written(graph), "fp32");
    EXPECT_EQ(choice.precision, "fp32");
  }
}

TEST_F(ArtifactTest, GraphWithoutTowersHasNoPrecision) {
  tensorflow::GraphDef graph;
  graph.add_node()->set_op("RecEmbeddingGroup");
  EXPECT_TRUE(UsesOurOps(graph));
  PrecisionChoice choice;
  ASSERT_TRUE(SetPrecision(Artifact(), PrecisionLimit::kAuto, &graph, &choice).ok());
  EXPECT_TRUE(choice.precision.empty());
}

TEST_F(ArtifactTest, TensorFlowOpsAreNotCustomOps) {
  tensorflow::GraphDef graph;
  for (const char* op : {"RecvTPUEmbeddingActivations", "Reciprocal", "ReciprocalGrad", "RecordInput", "Relu"}) {
    graph.add_node()->set_op(op);
  }
  EXPECT_FALSE(UsesOurOps(graph));
}

}  // namespace
}  // namespace processor
