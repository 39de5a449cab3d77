// SPDX-License-Identifier: Apache-2.0
// Which keys get a row. A table asks each time that training meets a key without one.
//
// A filter either keeps its own counts (a sketch) or lets the table count: then the table makes a record of 16 bytes for a
// key that it refuses (a candidate), and passes what it has counted.
#ifndef ELASTIC_TRAINING_ADMISSION_ADMISSION_H_
#define ELASTIC_TRAINING_ADMISSION_ADMISSION_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace elastic_training {

/// When training met the keys of a batch.
struct AdmissionMoment {
  /// Number of updates of the table so far.
  uint64_t step;
  /// Number of keys, with repetitions, that training has looked up before this batch.
  uint64_t occurrences;
  /// Time [s] since 2020-01-01 UTC.
  uint32_t seconds;
};

/// A key without a row.
struct AdmissionRequest {
  /// The mixed key: all bits are random. Segments of the table are chosen by its top bits.
  uint64_t hash;
  /// How often the key occurs in the batch, at least 1.
  uint32_t occurrences;
  /// How often training met it, this batch included; equal to `occurrences` unless table_counts(). At most 2^24 - 1.
  uint32_t counted;
};

/// What is known of a key without a row, for explanations.
struct AdmissionEstimate {
  /// How often training has met it; a sketch may have counted another key with it, or have forgotten it.
  uint32_t counted = 0;
  /// The count at which it would be admitted now.
  uint32_t admits_at = 1;
  /// Probability that its next occurrence is admitted before that, of filters that draw.
  double draw = 0;
};

class Admission {
 public:
  /// Makes the filter of the "admission" object of a table's JSON. `seed` is the table's.
  /// \throws std::invalid_argument that names the field.
  static std::unique_ptr<Admission> Create(const nlohmann::json& config, uint64_t seed);

  virtual ~Admission() = default;
  Admission() = default;
  Admission(const Admission&) = delete;
  Admission& operator=(const Admission&) = delete;

  /// Whether every key is admitted; the table then does not ask.
  virtual bool admits_all() const { return false; }
  /// Whether the table keeps candidates with their counts.
  virtual bool table_counts() const { return false; }

  /// Tells whether a key gets a row now, and counts it if the filter has counts.
  /// Several threads call at once; keys whose hashes have equal top bits often come from one thread at a time, so locks
  /// that are chosen by the top 6 bits of the hash rarely wait.
  virtual bool Admit(const AdmissionRequest& request, const AdmissionMoment& moment) = 0;

  /// Returns what is known of a key without a row, and counts nothing. `counted`: what a table that counts has counted.
  /// Any thread may call.
  virtual AdmissionEstimate Estimate(uint64_t hash, uint32_t counted, const AdmissionMoment& moment) const {
    (void)hash, (void)moment;
    return {counted, 1, 0};
  }

  /// Tells a filter of a table that counts that the table has dropped the record of a candidate, with its count.
  virtual void Forget(uint64_t hash, uint32_t counted) { (void)hash, (void)counted; }

  /// Memory of the filter [bytes], without what the table keeps.
  virtual size_t bytes() const { return 0; }

  /// Returns counters of the filter by name, an object; for reports.
  virtual nlohmann::json Stats() const;

  /// Fixes what Save will return; keys are admitted again as soon as this returns, within microseconds. The caller stops
  /// the writers meanwhile.
  virtual void BeginCut() {}
  /// Returns what Restore needs, the filter's counts: those of BeginCut, if that was called since the last Save.
  /// Otherwise the caller stops the writers.
  virtual std::string Save() { return {}; }
  /// Drops what BeginCut has fixed. Keys may be admitted meanwhile.
  virtual void EndCut() {}
  /// Takes over what Save returned; the caller stops the writers.
  /// \throws std::invalid_argument if the state is of another filter or other sizes; the filter is then unchanged.
  virtual void Restore(std::string_view state);
};

std::unique_ptr<Admission> MakeAlways(const nlohmann::json& config, uint64_t seed);
std::unique_ptr<Admission> MakeExactCount(const nlohmann::json& config, uint64_t seed);
std::unique_ptr<Admission> MakeCountingFilter(const nlohmann::json& config, uint64_t seed);
std::unique_ptr<Admission> MakePoisson(const nlohmann::json& config, uint64_t seed);

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_ADMISSION_ADMISSION_H_
