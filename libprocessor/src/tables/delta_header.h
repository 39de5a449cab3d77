// SPDX-License-Identifier: Apache-2.0
// The header of a segment (docs/delta_format.md): its first 256 bytes, parsed and checked. Plain data.
#ifndef PROCESSOR_TABLES_DELTA_HEADER_H_
#define PROCESSOR_TABLES_DELTA_HEADER_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "absl/status/status.h"

namespace processor {

using DeltaLineage = std::array<uint8_t, 16>;
using ChainHash = std::array<uint8_t, 32>;

constexpr size_t kDeltaHeaderBytes = 256;
constexpr size_t kDeltaBlockBytes = 65536;
constexpr size_t kDeltaAlignment = 64;
/// The greatest epoch and term: names of files have 16 digits.
constexpr uint64_t kGreatestEpoch = 9999999999999999;
/// A compatible feature: the directory ends with the chain hashes of all epochs but the last.
constexpr uint64_t kListsChains = 1;
/// The event time of a segment whose writer does not know it.
constexpr int64_t kUnknownTime = std::numeric_limits<int64_t>::min();

struct DeltaHeader {
  uint64_t file_size = 0;
  uint64_t compatible = 0;
  DeltaLineage lineage{};
  uint64_t first_epoch = 0;
  uint64_t last_epoch = 0;
  uint64_t term = 0;
  int64_t event_time = kUnknownTime;  // µs since 1970
  int64_t write_time = 0;             // µs since 1970
  ChainHash previous{};               // of epoch first_epoch - 1
  ChainHash chain{};                  // of epoch last_epoch; DeltaSegment sets it if the segment is not compacted
  uint64_t directory_offset = 0;
  uint64_t directory_size = 0;
  uint64_t checksums_offset = 0;

  bool compacted() const { return first_epoch != last_epoch; }
  /// The number of blocks with a checksum.
  uint64_t num_blocks() const {
    return (checksums_offset - kDeltaHeaderBytes + kDeltaBlockBytes - 1) / kDeltaBlockBytes;
  }
};

/// Returns the next multiple of the alignment of arrays.
constexpr uint64_t AlignedForDelta(uint64_t offset) {
  return (offset + kDeltaAlignment - 1) / kDeltaAlignment * kDeltaAlignment;
}

/// Returns the chain hash of epoch 0.
ChainHash ChainOfExport(const DeltaLineage& lineage);

/// Returns hexadecimal digits for messages.
std::string HexText(const DeltaLineage& lineage);
std::string HexText(const ChainHash& hash);

/// Parses the header of a file of `file_size` bytes, and checks all fields against each other and against that size.
/// \return DATA_LOSS, or FAILED_PRECONDITION for another version or an unknown feature; the messages do not name the file.
absl::Status ParseDeltaHeader(const uint8_t* bytes, uint64_t file_size, DeltaHeader* header);

/// Writes the header to 256 bytes, with its checksum.
void PackDeltaHeader(const DeltaHeader& header, uint8_t* bytes);

}  // namespace processor

#endif  // PROCESSOR_TABLES_DELTA_HEADER_H_
