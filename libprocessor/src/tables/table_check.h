// SPDX-License-Identifier: Apache-2.0
// Checks the contents of a table's file once, before any of it is used. Any thread may call it.
#ifndef PROCESSOR_TABLES_TABLE_CHECK_H_
#define PROCESSOR_TABLES_TABLE_CHECK_H_

#include "absl/status/status.h"
#include "src/tables/table_file.h"
#include "src/tables/table_header.h"

namespace processor {

/// Reads the whole file and checks
/// * the checksums of all sections or, in version 2, of all blocks, and that there are zeros between sections,
/// * that a search finds every key of the index, and that its row exists,
/// * that the offsets of strings are in order and end inside their bytes.
/// \return DATA_LOSS for a damaged file, UNAVAILABLE if it cannot be read, RESOURCE_EXHAUSTED without memory for a
/// buffer.
absl::Status CheckTableContents(const TableFile& file, const TableHeader& header);

}  // namespace processor

#endif  // PROCESSOR_TABLES_TABLE_CHECK_H_
