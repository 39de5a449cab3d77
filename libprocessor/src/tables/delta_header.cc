// SPDX-License-Identifier: Apache-2.0
#include "src/tables/delta_header.h"

#include <algorithm>
#include <cstring>
#include <string_view>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/base/sha256.h"
#include "src/tables/table_crc.h"

namespace processor {
namespace {

constexpr char kDeltaMagic[] = "RECDEL\r\n";
constexpr uint32_t kDeltaVersion = 1;
constexpr size_t kDeltaReserved = 188, kDeltaCrc = 252;
constexpr uint64_t kLeastDirectory = 16, kHashBytes = 32, kMostDeltaBytes = uint64_t{1} << 62;

template <typename T>
T Field(const uint8_t* bytes, size_t offset) {
  T value;
  std::memcpy(&value, bytes + offset, sizeof(T));
  return value;
}

template <typename T>
void SetField(uint8_t* bytes, size_t offset, const T& value) {
  std::memcpy(bytes + offset, &value, sizeof(T));
}

template <typename... Parts>
absl::Status DamagedHeader(const Parts&... parts) {
  return absl::DataLossError(absl::StrCat("header: ", parts...));
}

bool IsZero(const ChainHash& hash) { return hash == ChainHash{}; }

absl::Status CheckNumber(const char* name, uint64_t value, uint64_t least) {
  if (value >= least && value <= kGreatestEpoch) return absl::OkStatus();
  return DamagedHeader(name, " ", value, ", expected ", least, " to ", kGreatestEpoch);
}

absl::Status CheckEpochs(const DeltaHeader& header) {
  if (absl::Status s = CheckNumber("first_epoch", header.first_epoch, 1); !s.ok()) return s;
  if (absl::Status s = CheckNumber("last_epoch", header.last_epoch, header.first_epoch); !s.ok()) return s;
  if (absl::Status s = CheckNumber("term", header.term, 1); !s.ok()) return s;
  if (IsZero(header.chain) == header.compacted()) {
    return DamagedHeader(
        "chain ", HexText(header.chain), ", expected ",
        header.compacted() ? "a chain hash: the segment is compacted" : "zeros: the segment is not compacted");
  }
  return absl::OkStatus();
}

// Each value is compared with the size of the file before it is used, so that no sum wraps.
absl::Status CheckDeltaPlaces(const DeltaHeader& header, uint64_t file_size) {
  if (header.file_size != file_size || file_size > kMostDeltaBytes) {
    return absl::DataLossError(absl::StrCat(file_size, " bytes, expected file_size ", header.file_size));
  }
  if (header.directory_offset < kDeltaHeaderBytes || header.directory_offset % kDeltaAlignment != 0 ||
      header.directory_offset > file_size) {
    return DamagedHeader("directory_offset ", header.directory_offset, ", expected a multiple of ", kDeltaAlignment,
                         " between header and end");
  }
  if (header.directory_size < kLeastDirectory || header.directory_size % 8 != 0 ||
      header.directory_size > file_size - header.directory_offset) {
    return DamagedHeader("directory_size ", header.directory_size, ", expected a multiple of 8 from ", kLeastDirectory,
                         " on that fits");
  }
  if (const uint64_t end = header.directory_offset + header.directory_size; header.checksums_offset != end) {
    return DamagedHeader("checksums_offset ", header.checksums_offset, ", expected ", end);
  }
  const uint64_t expected = header.checksums_offset + 4 * header.num_blocks() + kHashBytes;
  if (header.file_size != expected) return DamagedHeader("file_size ", header.file_size, ", expected ", expected);
  return absl::OkStatus();
}

template <size_t N>
std::string Hex(const std::array<uint8_t, N>& bytes) {
  return absl::BytesToHexString({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
}

}  // namespace

ChainHash ChainOfExport(const DeltaLineage& lineage) {
  Sha256 hash;
  hash.Update({reinterpret_cast<const char*>(lineage.data()), lineage.size()});
  return hash.FinishBytes();
}

std::string HexText(const DeltaLineage& lineage) { return Hex(lineage); }
std::string HexText(const ChainHash& hash) { return Hex(hash); }

absl::Status ParseDeltaHeader(const uint8_t* bytes, uint64_t file_size, DeltaHeader* header) {
  if (std::memcmp(bytes, kDeltaMagic, 8) != 0) {
    return absl::DataLossError(absl::StrCat("begins with '",
                                            absl::CHexEscape({reinterpret_cast<const char*>(bytes), 8}),
                                            "', expected '", absl::CHexEscape(kDeltaMagic), "'"));
  }
  // Before the checksum: what that covers may differ in another version.
  if (const auto version = Field<uint32_t>(bytes, 8); version != kDeltaVersion) {
    return absl::FailedPreconditionError(absl::StrCat("version ", version, " of the format, expected ", kDeltaVersion));
  }
  const auto crc = Field<uint32_t>(bytes, kDeltaCrc);
  if (const uint32_t found = ExtendTableCrc(0, bytes, kDeltaCrc); found != crc) {
    return absl::DataLossError(absl::StrCat("header checksum ", absl::Hex(found, absl::kZeroPad8), ", expected ",
                                            absl::Hex(crc, absl::kZeroPad8)));
  }
  if (const auto incompatible = Field<uint64_t>(bytes, 24); incompatible != 0) {
    return absl::FailedPreconditionError(absl::StrCat("incompatible features 0x", absl::Hex(incompatible),
                                                      ", expected none that this version does not know"));
  }
  if (const auto size = Field<uint32_t>(bytes, 12); size != kDeltaHeaderBytes) {
    return DamagedHeader("header_size ", size, ", expected ", kDeltaHeaderBytes);
  }
  if (const auto size = Field<uint32_t>(bytes, 184); size != kDeltaBlockBytes) {
    return DamagedHeader("block_size ", size, ", expected ", kDeltaBlockBytes);
  }
  if (!std::all_of(bytes + kDeltaReserved, bytes + kDeltaCrc, [](uint8_t byte) { return byte == 0; })) {
    return DamagedHeader("reserved bytes that are not zero");
  }
  DeltaHeader found;
  found.file_size = Field<uint64_t>(bytes, 16);
  found.compatible = Field<uint64_t>(bytes, 32);
  found.lineage = Field<DeltaLineage>(bytes, 40);
  found.first_epoch = Field<uint64_t>(bytes, 56);
  found.last_epoch = Field<uint64_t>(bytes, 64);
  found.term = Field<uint64_t>(bytes, 72);
  found.event_time = Field<int64_t>(bytes, 80);
  found.write_time = Field<int64_t>(bytes, 88);
  found.previous = Field<ChainHash>(bytes, 96);
  found.chain = Field<ChainHash>(bytes, 128);
  found.directory_offset = Field<uint64_t>(bytes, 160);
  found.directory_size = Field<uint64_t>(bytes, 168);
  found.checksums_offset = Field<uint64_t>(bytes, 176);
  if (absl::Status s = CheckDeltaPlaces(found, file_size); !s.ok()) return s;
  if (absl::Status s = CheckEpochs(found); !s.ok()) return s;
  *header = found;
  return absl::OkStatus();
}

void PackDeltaHeader(const DeltaHeader& header, uint8_t* bytes) {
  std::fill(bytes, bytes + kDeltaHeaderBytes, uint8_t{0});
  std::memcpy(bytes, kDeltaMagic, 8);
  SetField(bytes, 8, kDeltaVersion);
  SetField(bytes, 12, uint32_t{kDeltaHeaderBytes});
  SetField(bytes, 16, header.file_size);
  SetField(bytes, 32, header.compatible);
  SetField(bytes, 40, header.lineage);
  SetField(bytes, 56, header.first_epoch);
  SetField(bytes, 64, header.last_epoch);
  SetField(bytes, 72, header.term);
  SetField(bytes, 80, header.event_time);
  SetField(bytes, 88, header.write_time);
  SetField(bytes, 96, header.previous);
  SetField(bytes, 128, header.chain);
  SetField(bytes, 160, header.directory_offset);
  SetField(bytes, 168, header.directory_size);
  SetField(bytes, 176, header.checksums_offset);
  SetField(bytes, 184, uint32_t{kDeltaBlockBytes});
  SetField(bytes, kDeltaCrc, ExtendTableCrc(0, bytes, kDeltaCrc));
}

}  // namespace processor
