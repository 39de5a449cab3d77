// SPDX-License-Identifier: Apache-2.0
// Chooses between our panels and oneDNN for the float products of a tower, by measuring both on this machine.
#ifndef PROCESSOR_KERNELS_FLOAT_PRODUCTS_H_
#define PROCESSOR_KERNELS_FLOAT_PRODUCTS_H_

#include <cstdint>
#include <limits>

#include "absl/types/span.h"
#include "src/kernels/cpu_features.h"
#include "src/kernels/onednn_matmul.h"
#include "src/kernels/weight_panels.h"

namespace processor {

/// For fewer rows than this, our panels are at least as fast everywhere: the weights are read once, as one stream.
constexpr int64_t kFewestOnednnRows = 16;
/// oneDNN is never faster.
constexpr int64_t kNoOnednnRows = std::numeric_limits<int64_t>::max();

/// A product in both forms, with the same weights.
struct FloatProduct {
  PanelShape shape;
  const void* panels = nullptr;
  const OnednnMatmul* onednn = nullptr;
};

/// Returns from how many rows on oneDNN computes products, all together, faster than our panels: kFewestOnednnRows, four
/// times as many, or kNoOnednnRows. It must win by 5 %, so that a machine chooses the same at every start: the two round
/// differently.
///
/// The products of a tower are chosen together, because oneDNN wants rows without gaps, and our panels rows with gaps.
/// The first call for a form in a process measures for some milliseconds. Any thread may call it.
int64_t FewestRowsForOnednn(Isa isa, absl::Span<const FloatProduct> products);

}  // namespace processor

#endif  // PROCESSOR_KERNELS_FLOAT_PRODUCTS_H_
