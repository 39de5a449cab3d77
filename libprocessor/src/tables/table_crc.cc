// SPDX-License-Identifier: Apache-2.0
#include "src/tables/table_crc.h"

#include <nmmintrin.h>

#include <cstring>

#include "absl/crc/crc32c.h"

namespace processor {
namespace {

// Below this it is not worth it to put three checksums together.
constexpr size_t kInterleavedBytes = 4096;

// The instruction takes three cycles, but one can begin in each: three stretches at a time. abseil has that as well, but
// not as the wheel is compiled.
__attribute__((target("sse4.2"))) absl::crc32c_t ThreeAtATime(absl::crc32c_t crc, const uint8_t* bytes, size_t words) {
  uint64_t crcs[3] = {~static_cast<uint32_t>(crc), ~0u, ~0u};
  const size_t stretch = 8 * words;
  for (size_t at = 0; at < stretch; at += 8) {
    for (int i = 0; i < 3; ++i) {
      uint64_t word;
      std::memcpy(&word, bytes + i * stretch + at, sizeof(word));
      crcs[i] = _mm_crc32_u64(crcs[i], word);
    }
  }
  crc = absl::crc32c_t{~static_cast<uint32_t>(crcs[0])};
  for (int i : {1, 2}) crc = absl::ConcatCrc32c(crc, absl::crc32c_t{~static_cast<uint32_t>(crcs[i])}, stretch);
  return crc;
}

}  // namespace

uint32_t ExtendTableCrc(uint32_t crc, const uint8_t* bytes, size_t size) {
  static const bool has_instruction = __builtin_cpu_supports("sse4.2");
  absl::crc32c_t extended{crc};
  if (has_instruction && size >= kInterleavedBytes) {
    const size_t words = size / 24;
    extended = ThreeAtATime(extended, bytes, words);
    bytes += 24 * words;
    size -= 24 * words;
  }
  return static_cast<uint32_t>(absl::ExtendCrc32c(extended, {reinterpret_cast<const char*>(bytes), size}));
}

}  // namespace processor
