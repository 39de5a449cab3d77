// SPDX-License-Identifier: Apache-2.0
// Reads the directory of a segment, and checks it and the arrays that it lists. Any thread may call it.
#ifndef PROCESSOR_TABLES_DELTA_DIRECTORY_H_
#define PROCESSOR_TABLES_DELTA_DIRECTORY_H_

#include <cstdint>

#include "absl/status/status.h"
#include "src/tables/delta_content.h"
#include "src/tables/delta_header.h"

namespace processor {

/// Reads the directory of the file at `file`, which is a multiple of 64 and of the size that its header says. Checks
/// * names, counts, and the places of all arrays,
/// * the zeros between arrays, and the order of keys.
/// `content` refers to the file.
/// \return DATA_LOSS; the messages name the record, not the file.
absl::Status ReadDeltaDirectory(const uint8_t* file, const DeltaHeader& header, DeltaContent* content);

}  // namespace processor

#endif  // PROCESSOR_TABLES_DELTA_DIRECTORY_H_
