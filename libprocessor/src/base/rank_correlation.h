// SPDX-License-Identifier: Apache-2.0
// Measures whether two lists of scores have the same order.
#ifndef PROCESSOR_BASE_RANK_CORRELATION_H_
#define PROCESSOR_BASE_RANK_CORRELATION_H_

#include "absl/types/span.h"

namespace processor {

/// Computes Spearman's rank correlation of two rows of scores of equal length; equal scores share their mean rank.
/// \return false if it is not defined: there are fewer than two scores, or all scores of one side are equal.
bool RankCorrelation(absl::Span<const float> a, absl::Span<const float> b, double* correlation);

}  // namespace processor

#endif  // PROCESSOR_BASE_RANK_CORRELATION_H_
