// SPDX-License-Identifier: Apache-2.0
// A direct table of made-up rows for a measurement, of any size, in a file that is gone when it has been mapped.
#ifndef PROCESSOR_BENCH_KERNELS_DIRECT_TABLE_H_
#define PROCESSOR_BENCH_KERNELS_DIRECT_TABLE_H_

#include <cstdint>
#include <memory>

#include "src/tables/embedding_table.h"

namespace processor::bench {

/// Row r of any table that this makes has the same first element for the same r, up to rounding.
/// Throws std::runtime_error if there is no place for it.
std::shared_ptr<const EmbeddingTable> MakeDirectTable(RowType type, uint32_t dim, uint64_t rows);

}  // namespace processor::bench

#endif  // PROCESSOR_BENCH_KERNELS_DIRECT_TABLE_H_
