// SPDX-License-Identifier: Apache-2.0
#include "src/admission/poisson_filter.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/admission/state_bytes.h"
#include "src/base/hash.h"
#include "src/config/json_fields.h"

namespace elastic_training {
namespace {

constexpr const char* kName = "poisson filter";
constexpr double kFitGrowth = 1.02;  // Of the position, between two fits.
constexpr double kRisesToTrust = 200;
constexpr double kSpentUnit = 0x1p32;
constexpr double kLowestCut = 0.5;
constexpr double kFillThatRaisesCut = 0.7;  // Of what rare_share allows.

// A number in [0, 1) that depends on the key, its count and the seed alone, so a run can be repeated.
double UniformOf(uint64_t seed, uint64_t hash, uint64_t count) {
  return FractionOf(Mix(hash ^ (seed * kGoldenStep) ^ (count << 32)));
}

}  // namespace

PoissonFilter::PoissonFilter(const PoissonSettings& settings) : settings_(settings), history_(settings.threshold) {
  if (settings.expected_keys > 0) counts_ = std::make_unique<FingerprintCounts>(settings.expected_keys);
  for (Stripe& stripe : stripes_) stripe.risen.assign(settings.threshold, 0);
  decisions_.push_back(std::make_unique<const Decision>());
  decision_ = decisions_.back().get();
}

double PoissonFilter::Horizon(double position) const {
  return settings_.horizon > 0 ? settings_.horizon : 2 * position;
}

double PoissonFilter::Chance(const Decision* decision, int counted, double position) const {
  if (decision != nullptr) {
    return ChanceOfThreshold(decision->prior, counted, settings_.threshold, position, Horizon(position));
  }
  if (position <= 0) return 1;  // The rate K / 0 is infinite.
  const double mean = counted * std::max(Horizon(position) - position, 0.0) / position;
  return PoissonTail(mean, settings_.threshold - counted);
}

bool PoissonFilter::AdmitsEarly(const AdmissionRequest& request, int counted, double position,
                                double* stays_rare) const {
  if (settings_.fitted) {
    const Decision* decision = decision_.load(std::memory_order_acquire);
    if (decision->cut > 1) return false;
    const double chance = Chance(decision, counted, position);
    *stays_rare = 1 - chance;
    return chance >= decision->cut;
  }
  const double chance = Chance(nullptr, counted, position);
  *stays_rare = 1 - chance;
  return UniformOf(settings_.seed, request.hash, counted) < chance;
}

AdmissionEstimate PoissonFilter::Estimate(uint64_t hash, uint32_t counted, const AdmissionMoment& moment) const {
  const uint32_t threshold = settings_.threshold;
  if (counts_) counted = counts_->Count(hash, 0);
  AdmissionEstimate estimate{counted, threshold, 0};
  const double position = static_cast<double>(moment.occurrences);
  const uint32_t next = std::min(counted, threshold - 1) + 1;
  if (!settings_.fitted) {
    if (next < threshold) estimate.draw = Chance(nullptr, static_cast<int>(next), position);
    return estimate;
  }
  const Decision* decision = decision_.load(std::memory_order_acquire);
  estimate.admits_at = next;
  while (estimate.admits_at < threshold &&
         (decision->cut > 1 || Chance(decision, static_cast<int>(estimate.admits_at), position) < decision->cut)) {
    ++estimate.admits_at;
  }
  return estimate;
}

bool PoissonFilter::Admit(const AdmissionRequest& request, const AdmissionMoment& moment) {
  const double position = static_cast<double>(moment.occurrences);
  if (position >= next_fit_.load(std::memory_order_relaxed)) Fit(position);
  const uint32_t threshold = settings_.threshold;
  const uint32_t counted = counts_ ? counts_->Add(request.hash, request.occurrences, threshold, 0) : request.counted;
  const int now = static_cast<int>(std::min(counted, threshold));
  const int before = counted > request.occurrences ? static_cast<int>(counted - request.occurrences) : 0;
  double stays_rare = 0;
  const bool early = now < settings_.threshold && AdmitsEarly(request, now, position, &stays_rare);
  const bool admitted = early || now == settings_.threshold;
  if (early && counts_) counts_->Remove(request.hash);

  Stripe& stripe = stripes_[request.hash >> 58];
  std::lock_guard<std::mutex> lock(stripe.mutex);
  for (int count = std::max(before, 1); count < now; ++count) stripe.risen[count] += 1;
  Tally& tally = stripe.tally;
  if (before == 0) {
    tally.seen += 1;
  } else {
    tally.waiting -= 1;
    tally.counts -= before;
  }
  if (admitted) {
    tally.admitted += 1;
    tally.early += early;
    tally.spent += std::llround(stays_rare * kSpentUnit);
  } else {
    tally.waiting += 1;
    tally.counts += now;
  }
  return admitted;
}

void PoissonFilter::Forget(uint64_t hash, uint32_t counted) {
  Stripe& stripe = stripes_[hash >> 58];
  std::lock_guard<std::mutex> lock(stripe.mutex);
  stripe.tally.waiting -= 1;
  stripe.tally.counts -= counted;
}

PoissonFilter::Tally PoissonFilter::Total() const {
  Tally total;
  for (Stripe& stripe : stripes_) {
    std::lock_guard<std::mutex> lock(stripe.mutex);
    total.seen += stripe.tally.seen;
    total.admitted += stripe.tally.admitted;
    total.spent += stripe.tally.spent;
    total.early += stripe.tally.early;
    total.waiting += stripe.tally.waiting;
    total.counts += stripe.tally.counts;
  }
  return total;
}

double PoissonFilter::CutOf(const Tally& total) const {
  const double spent = static_cast<double>(total.spent) / kSpentUnit;
  const double rare = static_cast<double>(total.seen - total.admitted) + spent;
  const double fill = rare > 0 ? spent / (settings_.rare_share * rare) : 1;
  if (fill >= 1) return 2;
  return std::max(kLowestCut, 1 - (1 - kLowestCut) * (1 - fill) / (1 - kFillThatRaisesCut));
}

void PoissonFilter::Fit(double position) {
  std::unique_lock<std::mutex> lock(fit_mutex_, std::try_to_lock);
  if (!lock || position < next_fit_.load(std::memory_order_relaxed)) return;
  const Tally total = Total();
  const double middle = (last_position_ + position) / 2;
  for (Stripe& stripe : stripes_) {
    std::lock_guard<std::mutex> stripe_lock(stripe.mutex);
    for (int count = 1; count < settings_.threshold; ++count) {
      // The counts of the first batches rise within a batch, which says nothing of waiting.
      if (last_position_ > 0) history_.AddRise(count, middle, static_cast<double>(stripe.risen[count]));
      stripe.risen[count] = 0;
    }
  }
  if (last_position_ > 0) {
    // A table may forget candidates that another filter has counted.
    history_.AddWait(std::max((last_waiting_ + static_cast<double>(total.waiting)) / 2, 0.0),
                     std::max((last_counts_ + static_cast<double>(total.counts)) / 2, 0.0), position - last_position_,
                     middle);
  }
  last_position_ = position;
  last_waiting_ = static_cast<double>(total.waiting);
  last_counts_ = static_cast<double>(total.counts);
  if (settings_.fitted && history_.rises() >= kRisesToTrust) {
    decisions_.push_back(std::make_unique<const Decision>(Decision{history_.Fit(position), CutOf(total)}));
    decision_.store(decisions_.back().get(), std::memory_order_release);
  }
  next_fit_.store(std::max(position * kFitGrowth, position + 1), std::memory_order_relaxed);
}

size_t PoissonFilter::bytes() const {
  std::lock_guard<std::mutex> lock(fit_mutex_);
  return sizeof *this + decisions_.size() * sizeof(Decision) + (counts_ ? counts_->bytes() : 0);
}

nlohmann::json PoissonFilter::Stats() const {
  const Tally total = Total();
  const Decision* decision = decision_.load(std::memory_order_acquire);
  nlohmann::json stats = {
      {"filter_bytes", bytes()},       {"candidates", total.waiting},
      {"seen_keys", total.seen},       {"admitted_keys", total.admitted},
      {"admitted_early", total.early}, {"expected_rare_let_in", static_cast<double>(total.spent) / kSpentUnit}};
  if (decision->cut <= 2 && settings_.fitted) {
    stats["prior_discount"] = decision->prior.discount;
    stats["prior_start"] = decision->prior.start;
    stats["cut"] = std::min(decision->cut, 1.0);
  }
  return stats;
}

std::string PoissonFilter::Numbers() const {
  std::lock_guard<std::mutex> lock(fit_mutex_);
  StateWriter writer(kName);
  writer.Put<uint64_t>(settings_.threshold);
  writer.Put<uint64_t>(settings_.fitted);
  const Tally total = Total();
  const Decision& decision = *decision_.load(std::memory_order_acquire);
  writer.Put(total);
  for (double number : {last_position_, last_waiting_, last_counts_, next_fit_.load(), decision.prior.discount,
                        decision.prior.start, decision.cut}) {
    writer.Put(number);
  }
  for (int count = 0; count < settings_.threshold; ++count) {
    int64_t risen = 0;
    for (Stripe& stripe : stripes_) {
      std::lock_guard<std::mutex> stripe_lock(stripe.mutex);
      risen += stripe.risen[count];
    }
    writer.Put(risen);
  }
  for (double number : history_.Numbers()) writer.Put(number);
  writer.Put<uint64_t>(counts_ ? counts_->state_bytes() : 0);
  return std::move(*writer.bytes());
}

void PoissonFilter::BeginCut() {
  cut_numbers_ = Numbers();
  if (counts_) counts_->BeginCut();
}

void PoissonFilter::EndCut() {
  cut_numbers_.clear();
  if (counts_) counts_->EndCut();
}

std::string PoissonFilter::Save() {
  std::string state = cut_numbers_.empty() ? Numbers() : std::exchange(cut_numbers_, {});
  if (counts_) counts_->Save(&state);
  return state;
}

void PoissonFilter::Restore(std::string_view state) {
  StateReader reader(kName, state);
  reader.Expect<uint64_t>("threshold", settings_.threshold);
  reader.Expect<uint64_t>("fitted prior", settings_.fitted);
  const Tally total = reader.Get<Tally>();
  double position, waiting, counts, next_fit;
  Decision decision;
  for (double* number :
       {&position, &waiting, &counts, &next_fit, &decision.prior.discount, &decision.prior.start, &decision.cut}) {
    *number = reader.Get<double>();
  }
  std::vector<int64_t> risen(settings_.threshold);
  std::vector<double> history(history_.Numbers().size());
  for (int64_t& number : risen) number = reader.Get<int64_t>();
  for (double& number : history) number = reader.Get<double>();
  const uint64_t bytes = counts_ ? counts_->state_bytes() : 0;
  reader.Expect<uint64_t>("bytes of counts (from expected_keys)", bytes);
  const std::string_view cells = reader.Rest(bytes);

  std::lock_guard<std::mutex> lock(fit_mutex_);
  for (Stripe& stripe : stripes_) {
    std::lock_guard<std::mutex> stripe_lock(stripe.mutex);
    const bool first = &stripe == &stripes_[0];
    stripe.tally = first ? total : Tally();
    stripe.risen = first ? risen : std::vector<int64_t>(risen.size(), 0);
  }
  history_.SetNumbers(history);
  last_position_ = position;
  last_waiting_ = waiting;
  last_counts_ = counts;
  next_fit_ = next_fit;
  decisions_.push_back(std::make_unique<const Decision>(decision));
  decision_ = decisions_.back().get();
  if (counts_) counts_->Restore(cells);
}

std::unique_ptr<Admission> MakePoisson(const nlohmann::json& config, uint64_t seed) {
  const JsonFields fields("admission poisson", config);
  fields.RefuseOthers({"kind", "threshold", "horizon", "prior", "rare_share", "expected_keys"});
  PoissonSettings settings;
  settings.expected_keys = fields.Integer("expected_keys", 0, 0, int64_t{1} << 36);
  settings.threshold = static_cast<int>(
      fields.Integer("threshold", 5, 2, settings.expected_keys > 0 ? FingerprintCounts::kHighestCount : 255));
  settings.horizon = fields.Number("horizon", 0, 0, 1e15);
  settings.fitted = fields.Text("prior", "fitted", {"fitted", "none"}) == "fitted";
  settings.rare_share = fields.Number("rare_share", 0.05, 1e-6, 1);
  settings.seed = seed;
  return std::make_unique<PoissonFilter>(settings);
}

}  // namespace elastic_training
