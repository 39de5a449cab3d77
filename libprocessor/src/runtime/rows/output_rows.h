// SPDX-License-Identifier: Apache-2.0
// Decides whether requests for certain outputs of a version may be batched, by what the graph proves and what trials
// have shown. The version owns it.
//
// Outputs that provably depend on their own row alone need one trial, which shows that they have rows. Outputs that
// provably depend on other rows are never batched. All others need trials until the evidence is sufficient: requests
// that differ in inputs and outputs count most, requests with equal outputs little, and copies of one request only for
// further copies. Afterwards a sample of all batches is checked as long as the version serves; the first difference
// ends batching for the whole version.
#ifndef PROCESSOR_RUNTIME_ROWS_OUTPUT_ROWS_H_
#define PROCESSOR_RUNTIME_ROWS_OUTPUT_ROWS_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <shared_mutex>
#include <string>
#include <utility>
#include <vector>

#include "nlohmann/json.hpp"
#include "src/codec/codec.h"
#include "src/runtime/rows/answers_agree.h"
#include "src/runtime/rows/row_proof.h"

namespace processor {

/// The evidence about the outputs of a version. Any thread may call Ask(), Tried() and Checked().
class OutputRows {
 public:
  /// How to run requests that could be batched.
  enum class Plan {
    kAlone,     // one by one
    kTry,       // a trial: one by one, and as a batch, to compare both
    kTogether,  // in one run
    kCheck,     // in one run, and one of them alone as well, to compare
  };
  /// What the requests of a trial have in common.
  enum class Likeness {
    kDifferent,    // neither all inputs nor all answers are equal
    kSameAnswers,  // all answers are equal, inputs are not
    kCopies,       // all inputs are equal
  };

  /// Sets what the graph proves about a signature's outputs, before the first request. Without this, nothing is proved.
  void SetProofs(const Signature& signature, std::vector<RowProof> proofs);
  /// Sets how much outputs may differ, before the first request.
  void SetTolerance(const Tolerance& tolerance) { tolerance_ = tolerance; }
  const Tolerance& tolerance() const { return tolerance_; }

  /// Whether the request may be batched, or tried in a batch.
  bool MayJoin(const DecodedRequest& request) const;
  /// Returns how to run a batch. `copies` tells whether the inputs of all its requests are equal; it is called only if
  /// that decides.
  template <typename Copies>
  Plan Ask(const DecodedRequest& request, Copies&& copies);
  /// Records the result of a trial. A difference is final.
  void Tried(const DecodedRequest& request, bool agree, Likeness likeness);
  /// Records the result of a check: `differs` names the output that differs, or is empty.
  void Checked(const DecodedRequest& request, const std::string& differs);
  /// Whether the graph proves that each row depends on itself alone.
  bool IsProved(const DecodedRequest& request) const;

  uint64_t checks() const { return checks_.load(std::memory_order_relaxed); }
  /// Whether a check has shown a difference.
  bool differed() const { return off_.load(std::memory_order_relaxed); }
  /// Describes for each signature whether its requests are batched, and if not, why.
  nlohmann::ordered_json Json(const std::vector<std::unique_ptr<Signature>>& signatures) const;

 private:
  static constexpr size_t kMaxKept = 256;
  static constexpr int kEnough = 64, kMostCopies = 4;
  static constexpr std::array<int, 3> kWorth = {16, 1, 0};  // of a trial, by Likeness
  // One in this many batches is checked: of proved outputs, and of outputs that were only tried.
  static constexpr uint64_t kProvedCheck = 1024, kTriedCheck = 64;

  struct Entry {
    std::atomic<bool> other{false};
    std::atomic<int> needed{kEnough};  // minus the evidence of trials so far
    std::atomic<int> needed_copies{kMostCopies};
    std::atomic<uint64_t> runs{0};
    bool proved = false;
    std::string reason;  // of `other`; with the mutex
  };
  using Key = std::pair<const Signature*, std::vector<int>>;

  Entry* Find(const DecodedRequest& request) const;
  Entry* FindOrAdd(const DecodedRequest& request);
  void MakeEntry(const Key& key, Entry* entry) const;
  void Refuse(const DecodedRequest& request, Entry* entry, const std::string& reason);
  static bool IsTurn(uint64_t run, uint64_t every);

  Tolerance tolerance_;
  std::map<const Signature*, std::vector<RowProof>> proofs_;
  std::atomic<bool> off_{false};
  std::atomic<uint64_t> checks_{0};

  mutable std::shared_mutex mutex_;
  mutable std::map<Key, std::unique_ptr<Entry>> entries_;
  std::string difference_;
};

template <typename Copies>
OutputRows::Plan OutputRows::Ask(const DecodedRequest& request, Copies&& copies) {
  if (differed()) return Plan::kAlone;
  Entry* const entry = FindOrAdd(request);
  if (entry == nullptr || entry->other.load(std::memory_order_relaxed)) return Plan::kAlone;
  if (entry->needed.load(std::memory_order_relaxed) > 0) {
    if (entry->needed_copies.load(std::memory_order_relaxed) > 0 || !copies()) return Plan::kTry;
  }
  const uint64_t run = entry->runs.fetch_add(1, std::memory_order_relaxed);
  return IsTurn(run, entry->proved ? kProvedCheck : kTriedCheck) ? Plan::kCheck : Plan::kTogether;
}

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_ROWS_OUTPUT_ROWS_H_
