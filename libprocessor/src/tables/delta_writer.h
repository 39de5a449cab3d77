// SPDX-License-Identifier: Apache-2.0
// Writes segments of timelines (docs/delta_format.md). Any thread may call it.
#ifndef PROCESSOR_TABLES_DELTA_WRITER_H_
#define PROCESSOR_TABLES_DELTA_WRITER_H_

#include <string>

#include "absl/status/status.h"
#include "src/tables/delta_content.h"
#include "src/tables/delta_header.h"

namespace processor {

/// Makes the bytes of a segment, which are the same for equal contents. Of `header`, sizes and offsets do not count, nor does
/// `chain` unless the segment is compacted. The last 32 bytes are the segment's hash.
/// \return INVALID_ARGUMENT if a reader would refuse the segment, for example because of keys that are not in order; the
/// message names the record.
absl::Status MakeDelta(const DeltaHeader& header, const DeltaContent& content, std::string* bytes);

}  // namespace processor

#endif  // PROCESSOR_TABLES_DELTA_WRITER_H_
