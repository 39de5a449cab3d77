// SPDX-License-Identifier: Apache-2.0
// Encodes rows of floats as a table stores them (docs/table_format.md, "How a writer rounds"). Any thread may call it.
#ifndef PROCESSOR_LIVE_ROW_ENCODER_H_
#define PROCESSOR_LIVE_ROW_ENCODER_H_

#include <cstddef>
#include <cstdint>

#include "src/tables/table_header.h"

namespace processor {

/// Writes the RowBytes(type, dim) bytes of a row [dim]. graph-tools writes the same bits.
/// \return false if the type cannot represent a number: see docs/table_format.md.
bool EncodeRow(RowType type, const float* row, size_t dim, uint8_t* dst);

}  // namespace processor

#endif  // PROCESSOR_LIVE_ROW_ENCODER_H_
