// SPDX-License-Identifier: Apache-2.0
// Any bytes as a segment: it is refused, or it is the one that the writer makes of what was read.
//
// The first byte of an input: 1, do not make the checksums right, without which hardly any file would get past them; 2, take
// the header as it is, without making magic number, version and sizes right. The rest is the file without what is behind its
// directory.
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "delta_file.h"
#include "memory_file.h"
#include "src/tables/delta_segment.h"

namespace {

using processor::DeltaKeyKind;
using processor::DeltaKeys;
using processor::DeltaSegment;
using processor::kDeltaBlockBytes;
using processor::kDeltaHeaderBytes;
using processor::fuzz::MemoryFile;
using processor::fuzz::Require;

std::string FileOf(const uint8_t* data, size_t size) {
  const uint8_t mode = data[0];
  std::string bytes(reinterpret_cast<const char*>(data) + 1, size - 1);
  if (bytes.size() < kDeltaHeaderBytes) return bytes;
  if ((mode & 2) == 0) {
    const uint64_t end = bytes.size() / 8 * 8;
    bytes.resize(end + 4 * ((end - kDeltaHeaderBytes + kDeltaBlockBytes - 1) / kDeltaBlockBytes) + 32);
    bytes.replace(0, 8, "RECDEL\r\n");
    processor::Put<uint32_t>(&bytes, 8, 1);
    processor::Put<uint32_t>(&bytes, 12, kDeltaHeaderBytes);
    processor::Put<uint64_t>(&bytes, 16, bytes.size());
    processor::Put<uint64_t>(&bytes, 24, 0);
    processor::Put<uint64_t>(&bytes, 168, end - processor::Get<uint64_t>(bytes, 160));
    processor::Put<uint64_t>(&bytes, 176, end);
    processor::Put<uint32_t>(&bytes, 184, kDeltaBlockBytes);
  }
  if ((mode & 1) == 0) processor::RepairDelta(&bytes);
  return bytes;
}

// The order of the keys of a table, found without the reader's code.
void CheckOrder(const DeltaKeys& keys) {
  for (size_t i = 1; i < keys.count; ++i) {
    Require(keys.kind == DeltaKeyKind::kString ? keys.string(i - 1) < keys.string(i)
                                               : keys.integers[i - 1] < keys.integers[i],
            "keys that do not ascend");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string bytes = FileOf(data, size);
  const MemoryFile file(bytes);
  std::unique_ptr<const DeltaSegment> segment;
  if (const absl::Status status = DeltaSegment::Open(file.path(), &segment); !status.ok()) {
    Require(status.message().find(file.path()) != std::string::npos, "an error that does not name the file");
    return 0;
  }
  processor::DeltaContent content;
  content.tables.assign(segment->tables().begin(), segment->tables().end());
  content.variables.assign(segment->variables().begin(), segment->variables().end());
  content.streams.assign(segment->streams().begin(), segment->streams().end());
  for (const processor::DeltaTable& table : content.tables) {
    CheckOrder(table.changed);
    CheckOrder(table.deleted);
  }
  std::string written;
  Require(processor::MakeDelta(segment->header(), content, &written).ok(), "a segment that cannot be written again");
  Require(written == bytes, "a segment that is written with other bytes");
  return 0;
}
