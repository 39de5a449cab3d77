// SPDX-License-Identifier: Apache-2.0
// Dot products between the vectors of a row's features. An interaction is constant once it is made; any thread may compute
// rows with it.
#ifndef PROCESSOR_KERNELS_DOT_INTERACTION_H_
#define PROCESSOR_KERNELS_DOT_INTERACTION_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "src/kernels/cpu_features.h"

namespace processor {

/// The pairs of fields that are multiplied, in the order of the result.
class DotPairs {
 public:
  /// \param pairs one number for each pair: `i · fields + j` for fields i and j, or -1 for a zero
  DotPairs(absl::Span<const int64_t> pairs, int64_t fields);

  int64_t fields() const { return fields_; }
  int64_t size() const { return static_cast<int64_t>(places_.size()); }
  /// Returns the floats of scratch memory that `Rows` needs.
  size_t scratch(int64_t dim) const;

  /// Computes `dst[r, p] = Σ_e src[r, i_p, e] · src[r, j_p, e]`.
  ///
  /// \param src [rows, fields, dim]
  /// \param dst [rows, size()]
  void Rows(const float* src, int64_t rows, int64_t dim, float* scratch, float* dst, Isa isa = ThisCpu().isa) const;

 private:
  int64_t fields_ = 0;
  int64_t stride_ = 0;
  std::vector<int32_t> places_;
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_DOT_INTERACTION_H_
