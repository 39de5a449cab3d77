// SPDX-License-Identifier: Apache-2.0
// A key is admitted when training has met it about `threshold` times; counts take 24 bits a key and age. The table keeps
// nothing of a refused key.
#include <cstring>
#include <stdexcept>

#include "src/admission/admission.h"
#include "src/admission/fingerprint_counts.h"
#include "src/admission/state_bytes.h"
#include "src/config/json_fields.h"

namespace elastic_training {
namespace {

class CountingFilter final : public Admission {
 public:
  CountingFilter(uint32_t threshold, uint64_t expected_keys, double half_life_s, double half_life_occurrences)
      : threshold_(threshold),
        half_life_s_(half_life_s),
        half_life_occurrences_(half_life_occurrences),
        counts_(expected_keys) {}

  bool Admit(const AdmissionRequest& request, const AdmissionMoment& moment) override {
    return counts_.Add(request.hash, request.occurrences, threshold_, Age(moment)) >= threshold_;
  }

  AdmissionEstimate Estimate(uint64_t hash, uint32_t, const AdmissionMoment& moment) const override {
    return {counts_.Count(hash, Age(moment)), threshold_, 0};
  }

  size_t bytes() const override { return counts_.bytes(); }
  nlohmann::json Stats() const override {
    return {{"filter_bytes", counts_.bytes()}, {"counted_keys", counts_.used()}};
  }
  void BeginCut() override { counts_.BeginCut(); }
  void EndCut() override { counts_.EndCut(); }

  std::string Save() override {
    StateWriter writer(kName);
    writer.Put<uint64_t>(threshold_);
    writer.Put<double>(half_life_s_);
    writer.Put<double>(half_life_occurrences_);
    writer.Put<uint64_t>(counts_.state_bytes());
    counts_.Save(writer.bytes());
    return std::move(*writer.bytes());
  }

  void Restore(std::string_view state) override {
    StateReader reader(kName, state);
    reader.Expect<uint64_t>("threshold", threshold_);
    reader.Expect<double>("half_life_s", half_life_s_);
    reader.Expect<double>("half_life_occurrences", half_life_occurrences_);
    reader.Expect<uint64_t>("bytes of counts (from expected_keys)", counts_.state_bytes());
    counts_.Restore(reader.Rest(counts_.state_bytes()));
  }

 private:
  static constexpr const char* kName = "counting filter";

  uint64_t Age(const AdmissionMoment& moment) const {
    if (half_life_s_ > 0) return static_cast<uint64_t>(moment.seconds / half_life_s_);
    if (half_life_occurrences_ > 0) return static_cast<uint64_t>(moment.occurrences / half_life_occurrences_);
    return 0;
  }

  const uint32_t threshold_;
  const double half_life_s_, half_life_occurrences_;
  FingerprintCounts counts_;
};

}  // namespace

std::unique_ptr<Admission> MakeCountingFilter(const nlohmann::json& config, uint64_t) {
  const JsonFields fields("admission counting_filter", config);
  fields.RefuseOthers({"kind", "threshold", "expected_keys", "half_life_s", "half_life_occurrences"});
  const double seconds = fields.Number("half_life_s", 0, 0, 1e9);
  const double occurrences = fields.Number("half_life_occurrences", 0, 0, 1e15);
  if (seconds > 0 && occurrences > 0) {
    throw std::invalid_argument(
        "admission counting_filter: half_life_s and half_life_occurrences are both set, expected at most one");
  }
  return std::make_unique<CountingFilter>(
      static_cast<uint32_t>(fields.Integer("threshold", 2, 1, FingerprintCounts::kHighestCount)),
      static_cast<uint64_t>(fields.Integer("expected_keys", 1000000, 1, int64_t{1} << 36)), seconds, occurrences);
}

}  // namespace elastic_training
