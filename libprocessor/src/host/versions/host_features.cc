// SPDX-License-Identifier: Apache-2.0
#include "src/host/versions/host_features.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/host/desired/desired_keys.h"
#include "tensorflow/core/framework/op.h"
#include "tensorflow/core/framework/op_def.pb.h"

namespace processor {
namespace {

// The ops of this library.
constexpr char kOpPrefix[] = "Rec";

std::vector<std::string> ReadFeatures() {
  std::vector<std::string> features = DesiredFeatures();
  std::vector<tensorflow::OpDef> ops;
  tensorflow::OpRegistry::Global()->GetRegisteredOps(&ops);
  for (const tensorflow::OpDef& op : ops) {
    std::string feature = absl::StrCat("op:", op.name());
    if (absl::StartsWith(op.name(), kOpPrefix) && !IsWithoutFeature(feature)) features.push_back(std::move(feature));
  }
  std::sort(features.begin(), features.end());
  return features;
}

}  // namespace

const std::vector<std::string>& HostFeatures() {
  static const auto* features = new std::vector<std::string>(ReadFeatures());
  return *features;
}

void RefuseWhatIsBeyond(const std::vector<std::string>& features, DesiredState* state) {
  for (auto& [name, model] : state->models) {
    for (auto& [number, version] : model.versions) {
      if (!version.fault.ok()) continue;
      std::vector<std::string> lacking;
      for (const std::string& need : version.needs) {
        if (!std::binary_search(features.begin(), features.end(), need)) lacking.push_back(need);
      }
      if (lacking.empty()) continue;
      DesiredVersion refused;
      refused.path = version.path;
      refused.fault = absl::FailedPreconditionError(absl::StrCat("needs ", absl::StrJoin(lacking, ", "),
                                                                 ", which this host (release ", PROCESSOR_VERSION,
                                                                 ") lacks, expected a host of a later release"));
      version = std::move(refused);
    }
  }
}

}  // namespace processor
