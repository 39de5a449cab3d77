// SPDX-License-Identifier: Apache-2.0
// Checks the contents of a table's file once, before any of it is used. Any thread may call it.
#ifndef PROCESSOR_TABLES_TABLE_CHECK_H_
#define PROCESSOR_TABLES_TABLE_CHECK_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>

#include "absl/status/status.h"
#include "src/base/huge_memory.h"
#include "src/tables/direct_file.h"
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

/// All of a table but its rows, in memory.
struct TableParts {
  HugeMemory index, key_offsets, key_bytes;
  std::unique_ptr<const uint32_t[]> checksums;  // of blocks

  size_t bytes() const { return index.size() + key_offsets.size() + key_bytes.size(); }
};

/// Reads all but the rows into memory, past the page cache, and checks it as CheckTableContents() does. Blocks that have only
/// rows are not read.
/// \return as CheckTableContents(); FAILED_PRECONDITION for version 1.
absl::Status ReadTableParts(const TableFile& file, const DirectFile& direct, const TableHeader& header,
                            TableParts* parts);

/// Where the sections of a table are copied; each has room for its size in the header.
struct TableCopy {
  uint8_t* rows = nullptr;  // null: not copied, and the blocks that have only rows are not read
  uint8_t* index = nullptr;
  uint8_t* key_offsets = nullptr;
  uint8_t* key_bytes = nullptr;
  std::function<void()> on_progress;  // called after each piece that was read; may be empty
};

/// Reads the whole file past the page cache, copies its sections, and checks it as CheckTableContents() does. What was copied
/// is not to be used if that fails.
absl::Status CopyTable(const TableFile& file, const DirectFile& direct, const TableHeader& header,
                       const TableCopy& copy);

}  // namespace processor

#endif  // PROCESSOR_TABLES_TABLE_CHECK_H_
