// SPDX-License-Identifier: Apache-2.0
#include "src/admission/admission.h"

#include <stdexcept>

#include "src/config/json_fields.h"

namespace elastic_training {
namespace {

struct AdmissionKind {
  const char* name;
  std::unique_ptr<Admission> (*make)(const nlohmann::json& config, uint64_t seed);
};

constexpr AdmissionKind kAdmissions[] = {
    {"always", MakeAlways},
    {"count", MakeExactCount},
    {"counting_filter", MakeCountingFilter},
    {"poisson", MakePoisson},
};

class Always final : public Admission {
 public:
  bool admits_all() const override { return true; }
  bool Admit(const AdmissionRequest&, const AdmissionMoment&) override { return true; }
};

}  // namespace

std::unique_ptr<Admission> Admission::Create(const nlohmann::json& config, uint64_t seed) {
  const std::string kind = JsonFields("admission", config).Text("kind", "always", {});
  std::string known;
  for (const AdmissionKind& one : kAdmissions) {
    if (kind == one.name) return one.make(config, seed);
    known += (known.empty() ? "'" : ", '") + std::string(one.name) + "'";
  }
  throw std::invalid_argument("admission: kind is '" + kind + "', expected one of " + known);
}

nlohmann::json Admission::Stats() const { return nlohmann::json::object(); }

void Admission::Restore(std::string_view state) {
  if (!state.empty()) {
    throw std::invalid_argument("admission: a state of " + std::to_string(state.size()) +
                                " bytes found, expected none: this filter has no counts");
  }
}

std::unique_ptr<Admission> MakeAlways(const nlohmann::json& config, uint64_t) {
  JsonFields("admission always", config).RefuseOthers({"kind"});
  return std::make_unique<Always>();
}

}  // namespace elastic_training
