// SPDX-License-Identifier: Apache-2.0
#include "src/tables/delta_segment.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>

#include "absl/strings/str_cat.h"
#include "src/base/mapped_memory.h"
#include "src/base/sha256.h"
#include "src/tables/delta_directory.h"
#include "src/tables/table_crc.h"
#include "src/tables/table_file.h"

namespace processor {
namespace {

constexpr FileTerms kSegmentTerms = {
    "segment", "a segment of a timeline", "update recprocessor",
    "copy it again, or delete it and all later segments, and let the writer publish them again"};

// Whole blocks that fit into the second-level cache: read, checked and hashed while they are there.
constexpr uint64_t kChunkBlocks = 8;
constexpr size_t kLargePage = size_t{2} << 20;

void AddBytes(const uint8_t* bytes, uint64_t size, Sha256* hash) {
  hash->Update({reinterpret_cast<const char*>(bytes), static_cast<size_t>(size)});
}

absl::Status CheckBlock(const uint8_t* bytes, uint64_t size, uint32_t expected, uint64_t number, uint64_t blocks) {
  if (const uint32_t crc = ExtendTableCrc(0, bytes, static_cast<size_t>(size)); crc != expected) {
    return absl::DataLossError(absl::StrCat("block ", number, " of ", blocks, ": checksum ",
                                            absl::Hex(crc, absl::kZeroPad8), ", expected ",
                                            absl::Hex(expected, absl::kZeroPad8)));
  }
  return absl::OkStatus();
}

// Reads what is behind the header, which is in `bytes` already, and checks the checksums and the hash.
absl::Status ReadChecked(const TableFile& file, const DeltaHeader& header, uint8_t* bytes) {
  // The checksums first, so that each block can be checked when it is read.
  if (absl::Status s = file.Read(header.checksums_offset, header.file_size - header.checksums_offset,
                                 bytes + header.checksums_offset);
      !s.ok()) {
    return s;
  }
  Sha256 hash;
  AddBytes(bytes, kDeltaHeaderBytes, &hash);
  uint64_t number = 0;
  for (uint64_t at = kDeltaHeaderBytes; at < header.checksums_offset;) {
    const uint64_t end = std::min(at + kChunkBlocks * kDeltaBlockBytes, header.checksums_offset);
    if (absl::Status s = file.Read(at, end - at, bytes + at); !s.ok()) return s;
    AddBytes(bytes + at, end - at, &hash);
    for (; at < end; at += std::min<uint64_t>(kDeltaBlockBytes, end - at), ++number) {
      uint32_t crc;
      std::memcpy(&crc, bytes + header.checksums_offset + 4 * number, sizeof(crc));
      const uint64_t size = std::min<uint64_t>(kDeltaBlockBytes, end - at);
      if (absl::Status s = CheckBlock(bytes + at, size, crc, number, header.num_blocks()); !s.ok())
        return file.Named(s);
    }
  }
  AddBytes(bytes + header.checksums_offset, 4 * number, &hash);
  ChainHash expected;
  std::memcpy(expected.data(), bytes + header.file_size - expected.size(), expected.size());
  if (const ChainHash found = hash.FinishBytes(); found != expected) {
    return file.Named(absl::DataLossError(absl::StrCat("hash ", HexText(found), ", expected ", HexText(expected))));
  }
  return absl::OkStatus();
}

}  // namespace

DeltaSegment::~DeltaSegment() {
  if (bytes_ != nullptr) UnmapMemory(bytes_, header_.file_size);
}

absl::Status DeltaSegment::Open(const std::string& path, std::unique_ptr<const DeltaSegment>* segment) {
  TableFile file(path, kSegmentTerms);
  if (absl::Status s = file.Open(); !s.ok()) return s;
  const uint64_t size = file.identity().size;
  if (size < kDeltaHeaderBytes) {
    return file.Named(absl::DataLossError(absl::StrCat(size, " bytes, expected at least ", kDeltaHeaderBytes)));
  }
  uint8_t header[kDeltaHeaderBytes];
  if (absl::Status s = file.Read(0, sizeof(header), header); !s.ok()) return s;
  std::unique_ptr<DeltaSegment> opened(new DeltaSegment(path));
  if (absl::Status s = ParseDeltaHeader(header, size, &opened->header_); !s.ok()) return file.Named(s);
  opened->bytes_ = static_cast<uint8_t*>(MapMemory(size, kLargePage));
  if (opened->bytes_ == nullptr) {
    return file.Named(absl::ResourceExhaustedError(absl::StrCat("no memory for its ", size, " bytes")));
  }
  // Fewer page faults, which take as long as reading otherwise. Advice: an error changes nothing.
  if (size >= kLargePage) madvise(opened->bytes_, size, MADV_HUGEPAGE);
  std::memcpy(opened->bytes_, header, sizeof(header));
  if (absl::Status s = ReadChecked(file, opened->header_, opened->bytes_); !s.ok()) return s;
  if (absl::Status s = ReadDeltaDirectory(opened->bytes_, opened->header_, &opened->content_); !s.ok()) {
    return file.Named(s);
  }
  if (!opened->header_.compacted()) {
    std::memcpy(opened->header_.chain.data(), opened->bytes_ + size - sizeof(ChainHash), sizeof(ChainHash));
  }
  *segment = std::move(opened);
  return absl::OkStatus();
}

}  // namespace processor
