// SPDX-License-Identifier: Apache-2.0
// Brings the rows of tiered tables that a request needs into its memory, with one batch of reads for all tables.
#ifndef PROCESSOR_TABLES_TIERED_FETCH_H_
#define PROCESSOR_TABLES_TIERED_FETCH_H_

#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "src/tables/early_rows.h"
#include "src/tables/tiered_pieces.h"
#include "src/tables/tiered_rows.h"

namespace processor {

/// The rows of one block of a request. It is kept for the next one, which reuses its memory; one thread uses it.
class TieredFetch {
 public:
  /// Copies those of the rows `numbers[i]` of the file that are in a cache to `dst + i * stride`, and remembers the
  /// others for Finish(). A row has as many bytes as in the file; other numbers are passed over. `rows` and `dst` must stay up
  /// to Finish().
  void Add(TieredRows* rows, absl::Span<const uint32_t> numbers, size_t stride, uint8_t* dst);

  /// Reads what is neither in the caches nor in `early`, checks it if nobody has before, and offers it to the caches.
  /// \return DATA_LOSS that names the file and what of it is damaged or cannot be read; RESOURCE_EXHAUSTED without memory.
  absl::Status Finish(EarlyRowsList early = {});

  size_t bytes() const { return missing_.capacity() * sizeof(uint32_t) + misses_.capacity() * sizeof(TieredMiss); }

 private:
  void TakeEarly(EarlyRowsList early);
  absl::Status ReadMisses();

  std::vector<uint32_t> missing_;  // positions in the numbers of one Add()
  std::vector<TieredMiss> misses_;
  TieredPieces pieces_;
};

}  // namespace processor

#endif  // PROCESSOR_TABLES_TIERED_FETCH_H_
