// SPDX-License-Identifier: Apache-2.0
// The caches of the rows of one table. The places of a cache have one size, so each run of rows of one width has its own.
#ifndef PROCESSOR_TABLES_ROW_CACHES_H_
#define PROCESSOR_TABLES_ROW_CACHES_H_

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "src/tables/row_cache.h"
#include "src/tables/row_runs.h"

namespace processor {

/// Any thread may call all functions, as those of RowCache.
class RowCaches {
 public:
  /// An equal part of the rows of each run gets places: wide rows are those that are read often, so a byte answers about as
  /// many reads in each cache.
  /// \param bytes  of all caches together; each has at least RowCache::LeastBytes()
  /// Throws std::bad_alloc.
  RowCaches(uint64_t bytes, const RowRuns& runs);

  /// As RowCache::Get(), for the rows of all runs; `missing` has them run by run.
  size_t Get(absl::Span<const uint32_t> numbers, size_t stride, uint8_t* dst, uint32_t* missing);
  /// As RowCache::FindMissing(), likewise.
  size_t FindMissing(absl::Span<const uint32_t> numbers, uint32_t* missing) const;
  /// Offers a row of the table that Get() has not found.
  void Offer(uint32_t number, const uint8_t* bytes) { caches_[runs_.NumberOf(number)]->Offer(number, bytes); }

  uint64_t places() const;
  uint64_t used() const;
  uint64_t bytes() const;

 private:
  const RowRuns runs_;
  std::vector<std::unique_ptr<RowCache>> caches_;  // by run
};

}  // namespace processor

#endif  // PROCESSOR_TABLES_ROW_CACHES_H_
