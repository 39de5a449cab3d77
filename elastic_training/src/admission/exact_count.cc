// SPDX-License-Identifier: Apache-2.0
// A key is admitted when training has met it `threshold` times. The table counts, in records of 16 bytes.
#include "src/admission/admission.h"
#include "src/config/json_fields.h"

namespace elastic_training {
namespace {

class ExactCount final : public Admission {
 public:
  explicit ExactCount(uint32_t threshold) : threshold_(threshold) {}

  bool table_counts() const override { return true; }
  bool Admit(const AdmissionRequest& request, const AdmissionMoment&) override { return request.counted >= threshold_; }

  AdmissionEstimate Estimate(uint64_t, uint32_t counted, const AdmissionMoment&) const override {
    return {counted, threshold_, 0};
  }

 private:
  const uint32_t threshold_;
};

}  // namespace

std::unique_ptr<Admission> MakeExactCount(const nlohmann::json& config, uint64_t) {
  const JsonFields fields("admission count", config);
  fields.RefuseOthers({"kind", "threshold"});
  return std::make_unique<ExactCount>(static_cast<uint32_t>(fields.Integer("threshold", 2, 1, (1 << 24) - 1)));
}

}  // namespace elastic_training
