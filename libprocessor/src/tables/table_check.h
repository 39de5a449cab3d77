// SPDX-License-Identifier: Apache-2.0
// What is inside a table's file is checked once, before any of it is used.
#ifndef PROCESSOR_TABLES_TABLE_CHECK_H_
#define PROCESSOR_TABLES_TABLE_CHECK_H_

#include "absl/status/status.h"
#include "src/tables/table_file.h"
#include "src/tables/table_header.h"

namespace processor {

/// Reads the whole file: checksums of all sections, zeros between them, an index whose keys are where a search finds them
/// and lead to rows that exist, and offsets of strings that are in order and end inside their bytes.
/// \return DATA_LOSS, UNAVAILABLE if it cannot be read, or RESOURCE_EXHAUSTED without memory for a buffer.
absl::Status CheckTableContents(const TableFile& file, const TableHeader& header);

}  // namespace processor

#endif  // PROCESSOR_TABLES_TABLE_CHECK_H_
