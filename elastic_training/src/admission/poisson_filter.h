// SPDX-License-Identifier: Apache-2.0
// Admits a key before it reaches the threshold if it will probably reach it.
//
// T is the end of the stream (horizon), t the position of the batch, both in occurrences of the table's keys; without a
// horizon the question is whether as much stream again would be enough, T = 2 t. K is the key's count so far.
//
// prior "none" is the filter as published: the key is Poisson with the rate K / t, so with the mean m = K (T - t) / t still
// to come it is admitted with the probability P(Poisson(m) >= threshold - K), drawn anew at each occurrence. At the first
// sight m = (T - t) / t, which ignores that a stream consists mostly of keys that hardly ever come again: with
// threshold 5 a new key is admitted with probability 0.98 at t = T / 10 and 0.37 at t = T / 5.
//
// prior "fitted" asks the distribution of rates that this feature's keys have shown (occurrence_rates.h): P is the tail
// of a negative binomial. There is no draw, since P says what it means: a key is admitted if P >= cut. The cut is a half,
// and rises to one while the rare keys let in (the sum of 1 - P) approach `rare_share` of the rare keys. Until the
// prior rests on 200 rises of counts, the filter counts exactly.
#ifndef ELASTIC_TRAINING_ADMISSION_POISSON_FILTER_H_
#define ELASTIC_TRAINING_ADMISSION_POISSON_FILTER_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <vector>

#include "src/admission/admission.h"
#include "src/admission/fingerprint_counts.h"
#include "src/admission/occurrence_rates.h"

namespace elastic_training {

struct PoissonSettings {
  int threshold = 5;
  /// Length of the stream [occurrences]; 0 if it has no end.
  double horizon = 0;
  /// Whether the prior is fitted; otherwise the filter is the published one.
  bool fitted = true;
  /// Share of the rare keys (those that end below the threshold) that may be let in.
  double rare_share = 0.05;
  /// If positive, counts are FingerprintCounts of so many keys; otherwise the table counts.
  uint64_t expected_keys = 0;
  uint64_t seed = 0;
};

class PoissonFilter final : public Admission {
 public:
  explicit PoissonFilter(const PoissonSettings& settings);

  bool table_counts() const override { return counts_ == nullptr; }
  bool Admit(const AdmissionRequest& request, const AdmissionMoment& moment) override;
  AdmissionEstimate Estimate(uint64_t hash, uint32_t counted, const AdmissionMoment& moment) const override;
  void Forget(uint64_t hash, uint32_t counted) override;
  size_t bytes() const override;
  nlohmann::json Stats() const override;
  void BeginCut() override;
  void EndCut() override;
  std::string Save() override;
  void Restore(std::string_view state) override;

 private:
  // What happened to candidates, keys that were seen and not admitted, since the filter was made.
  // Integers, so that sums do not depend on the order of threads.
  struct Tally {
    int64_t seen = 0;      // Keys that were new.
    int64_t admitted = 0;  // Keys that were admitted, early or at the threshold.
    int64_t spent = 0;     // Sum over early admissions of the probability that the key stays rare, in 2^-32.
    int64_t early = 0;     // Early admissions.
    int64_t waiting = 0;   // Candidates now: not admitted, not forgotten.
    int64_t counts = 0;    // Sum of their counts.
  };
  // Keys of one stripe come from one thread at a time, so its lock rarely waits.
  struct alignas(64) Stripe {
    std::mutex mutex;
    Tally tally;
    std::vector<int64_t> risen;  // By count, since the last fit.
  };
  // What decisions are made with between two fits.
  struct Decision {
    RatePrior prior;
    double cut = 2;  // A probability; more than one admits nothing early.
  };

  double Horizon(double position) const;
  /// Probability that a key of this count reaches the threshold. Of the published filter, if `decision` is null.
  double Chance(const Decision* decision, int counted, double position) const;
  bool AdmitsEarly(const AdmissionRequest& request, int counted, double position, double* stays_rare) const;
  void Fit(double position);
  Tally Total() const;
  double CutOf(const Tally& total) const;
  std::string Numbers() const;

  const PoissonSettings settings_;
  std::unique_ptr<FingerprintCounts> counts_;
  mutable std::array<Stripe, 64> stripes_;

  mutable std::mutex fit_mutex_;
  OccurrenceHistory history_;
  double last_position_ = 0, last_waiting_ = 0, last_counts_ = 0;
  std::atomic<double> next_fit_{0};
  // Readers hold no lock, so decisions are kept; a stream of 2^40 occurrences makes about a thousand.
  std::vector<std::unique_ptr<const Decision>> decisions_;
  std::atomic<const Decision*> decision_;
  std::string cut_numbers_;
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_ADMISSION_POISSON_FILTER_H_
