// SPDX-License-Identifier: Apache-2.0
// Copies rows of tables whose rows have different widths, so that kernels read rows of one width.
#ifndef PROCESSOR_KERNELS_WIDEN_ROWS_H_
#define PROCESSOR_KERNELS_WIDEN_ROWS_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "src/kernels/row_kernels.h"
#include "src/tables/embedding_table.h"

namespace processor {

/// Returns the type of the rows that kernels read. Elements that narrow rows lack are zeros, for which a row of int8 or int4
/// need not have a code; so copies of these are fp32.
RowType CopiedRowType(const EmbeddingTable& table);
/// Returns the bytes from one row that kernels read to the next.
uint32_t CopiedRowStride(const EmbeddingTable& table);

/// Copies row `numbers[i]` to `dst + i * CopiedRowStride(table)`, zeros behind a narrow row; nothing for numbers from
/// kFirstSpecialRow on. Any thread.
/// \param changed  row 0 of what deltas have changed, whose rows have numbers above those of the file and full width; or null
void WidenRows(const EmbeddingTable& table, const uint8_t* changed, absl::Span<const uint32_t> numbers, uint8_t* dst,
               const RowKernels& kernels = BestRowKernels());

/// As WidenRows, of a tiered table: at `dst` is what TieredFetch has brought of the rows of the file, each where its copy goes.
/// \param codes  memory for the codes of a row, which grows and is kept for the next call; no other thread uses it meanwhile
void WidenFetchedRows(const EmbeddingTable& table, const uint8_t* changed, absl::Span<const uint32_t> numbers,
                      uint8_t* dst, std::vector<uint8_t>* codes, const RowKernels& kernels = BestRowKernels());

}  // namespace processor

#endif  // PROCESSOR_KERNELS_WIDEN_ROWS_H_
