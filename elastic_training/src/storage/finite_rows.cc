// SPDX-License-Identifier: Apache-2.0
#include "src/storage/finite_rows.h"

#include <cstdint>
#include <cstring>

#include "src/base/vector_clones.h"

namespace elastic_training {

ELASTIC_VECTOR_CLONES
bool AllUsable(const float* values, size_t count) {
  // The largest exponent of all tells; in what is not finite all of its bits are set.
  uint32_t largest = 0;
  for (size_t i = 0; i < count; ++i) {
    uint32_t bits;
    std::memcpy(&bits, values + i, sizeof(bits));
    bits &= 0x7f800000;
    largest = bits > largest ? bits : largest;
  }
  return largest < (127u + 60) << 23;
}

ELASTIC_VECTOR_CLONES
void AddScaled(const float* __restrict from, float scale, size_t count, float* __restrict sum) {
  for (size_t i = 0; i < count; ++i) sum[i] += from[i] * scale;
}

}  // namespace elastic_training
