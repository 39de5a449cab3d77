// SPDX-License-Identifier: Apache-2.0
#include "src/host/requests/score_counts.h"

#include <cstring>

namespace processor {
namespace {

constexpr uint32_t kMagnitude = 0x7fffffff;
constexpr uint32_t kInfinityBits = 0x7f800000;

}  // namespace

void ScoreCounts::Add(absl::Span<const float> scores) {
  if (scores.empty()) return;
  scores = scores.subspan(0, kMostPerAnswer);
  uint32_t nan = 0, infinite = 0;
  for (const float score : scores) {  // compares bits: a loop without branches, which compilers vectorize
    uint32_t bits;
    std::memcpy(&bits, &score, sizeof(bits));
    nan += (bits & kMagnitude) > kInfinityBits;
    infinite += (bits & kMagnitude) == kInfinityBits;
  }
  answers_.fetch_add(1, std::memory_order_relaxed);
  scores_.fetch_add(scores.size(), std::memory_order_relaxed);
  if (nan > 0) nan_.fetch_add(nan, std::memory_order_relaxed);
  if (infinite > 0) infinite_.fetch_add(infinite, std::memory_order_relaxed);
}

}  // namespace processor
