// SPDX-License-Identifier: Apache-2.0
#include "src/tables/delta_writer.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "src/base/sha256.h"
#include "src/tables/delta_directory.h"
#include "src/tables/table_crc.h"

namespace processor {
namespace {

template <typename T>
void AppendRaw(std::string* bytes, const T* values, uint64_t count) {
  bytes->append(reinterpret_cast<const char*>(values), count * sizeof(T));
}

template <typename T>
void AppendValue(std::string* bytes, T value) {
  AppendRaw(bytes, &value, 1);
}

void Align(std::string* bytes) { bytes->resize(AlignedForDelta(bytes->size())); }

template <typename T>
void AppendArray(std::string* bytes, const T* values, uint64_t count) {
  if (count == 0) return;
  Align(bytes);
  AppendRaw(bytes, values, count);
}

void AppendKeys(std::string* bytes, const DeltaKeys& keys) {
  if (keys.kind != DeltaKeyKind::kString) return AppendArray(bytes, keys.integers, keys.count);
  if (keys.count == 0) return;
  AppendArray(bytes, keys.offsets, keys.count + 1);
  AppendRaw(bytes, keys.bytes, keys.offsets[keys.count]);
}

void AppendName(std::string* bytes, std::string_view name) {
  AppendValue(bytes, static_cast<uint32_t>(name.size()));
  bytes->append(name);
  bytes->resize(bytes->size() + (8 - (sizeof(uint32_t) + name.size()) % 8) % 8);
}

void AppendTable(const DeltaTable& table, std::string* data, std::string* directory) {
  AppendName(directory, table.name);
  AppendValue(directory, static_cast<uint32_t>(table.key_kind));
  AppendValue(directory, table.dim);
  AppendValue(directory, uint64_t{table.changed.count});
  AppendValue(directory, uint64_t{table.deleted.count});
  AppendValue(directory, uint64_t{table.default_numbers.size()});
  AppendValue(directory, AlignedForDelta(data->size()));
  AppendKeys(data, table.changed);
  AppendArray(data, table.rows, table.changed.count * table.dim);
  AppendKeys(data, table.deleted);
  AppendArray(data, table.default_numbers.data(), table.default_numbers.size());
  AppendArray(data, table.default_rows, table.default_numbers.size() * table.dim);
}

void AppendVariable(const DeltaVariable& variable, std::string* data, std::string* directory) {
  AppendName(directory, variable.name);
  AppendValue(directory, uint32_t{0});
  AppendValue(directory, static_cast<uint32_t>(variable.shape.size()));
  uint64_t elements = 1;
  for (const int64_t size : variable.shape) {
    AppendValue(directory, static_cast<uint64_t>(size));
    elements *= static_cast<uint64_t>(size);
  }
  AppendValue(directory, AlignedForDelta(data->size()));
  AppendArray(data, variable.data, elements);
}

// Returns the header of the file whose data and directory are there.
DeltaHeader HeaderFor(const DeltaHeader& given, bool lists_chains, uint64_t directory_offset, uint64_t directory_size) {
  DeltaHeader header = given;
  if (!header.compacted()) header.chain = {};
  if (lists_chains) header.compatible |= kListsChains;
  header.directory_offset = directory_offset;
  header.directory_size = directory_size;
  header.checksums_offset = directory_offset + directory_size;
  header.file_size = header.checksums_offset + 4 * header.num_blocks() + sizeof(ChainHash);
  return header;
}

void AppendChecksums(const DeltaHeader& header, std::string* bytes) {
  for (uint64_t at = kDeltaHeaderBytes; at < header.checksums_offset; at += kDeltaBlockBytes) {
    const uint64_t size = std::min<uint64_t>(kDeltaBlockBytes, header.checksums_offset - at);
    AppendValue(bytes, ExtendTableCrc(0, reinterpret_cast<const uint8_t*>(bytes->data()) + at, size));
  }
  Sha256 hash;
  hash.Update(*bytes);
  const ChainHash last = hash.FinishBytes();
  AppendRaw(bytes, last.data(), last.size());
}

// Readers decide what is right.
absl::Status CheckWritten(const std::string& bytes) {
  const auto* file = reinterpret_cast<const uint8_t*>(bytes.data());
  DeltaHeader header;
  DeltaContent content;
  absl::Status status = ParseDeltaHeader(file, bytes.size(), &header);
  if (status.ok()) status = ReadDeltaDirectory(file, header, &content);
  return status.ok() ? status : absl::InvalidArgumentError(status.message());
}

}  // namespace

absl::Status MakeDelta(const DeltaHeader& header, const DeltaContent& content, std::string* bytes) {
  std::string made(kDeltaHeaderBytes, '\0'), directory;
  AppendValue(&directory, static_cast<uint32_t>(content.tables.size()));
  AppendValue(&directory, static_cast<uint32_t>(content.variables.size()));
  AppendValue(&directory, static_cast<uint32_t>(content.streams.size()));
  AppendValue(&directory, uint32_t{0});
  for (const DeltaTable& table : content.tables) AppendTable(table, &made, &directory);
  for (const DeltaVariable& variable : content.variables) AppendVariable(variable, &made, &directory);
  for (const DeltaStream& stream : content.streams) {
    AppendName(&directory, stream.name);
    AppendValue(&directory, stream.position);
  }
  AppendRaw(&directory, content.chains.data(), content.chains.size());
  Align(&made);
  const DeltaHeader complete = HeaderFor(header, !content.chains.empty(), made.size(), directory.size());
  made += directory;
  PackDeltaHeader(complete, reinterpret_cast<uint8_t*>(made.data()));
  AppendChecksums(complete, &made);
  if (absl::Status s = CheckWritten(made); !s.ok()) return s;
  *bytes = std::move(made);
  return absl::OkStatus();
}

}  // namespace processor
