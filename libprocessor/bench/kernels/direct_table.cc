// SPDX-License-Identifier: Apache-2.0
#include "kernels/direct_table.h"

#include <algorithm>
#include <cstring>
#include <fstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "table_file.h"
#include "temporary_folder.h"
#include "tensorflow/core/lib/hash/crc32c.h"

namespace processor::bench {
namespace {

constexpr uint64_t kRowData = 4096;
constexpr uint64_t kRowsAtOnce = 1 << 14;

template <typename T>
void PutIn(uint8_t* bytes, size_t offset, T value) {
  std::memcpy(bytes + offset, &value, sizeof(T));
}

// A row of numbers between 0 and 1.
void MakeRow(RowType type, uint32_t dim, uint64_t number, uint8_t* row) {
  uint32_t random = static_cast<uint32_t>(number * 2654435761u) | 1;
  const bool quantized = type == RowType::kInt8 || type == RowType::kInt4;
  // Half: 2^-8 or 2^-4, and 2^-14.
  if (quantized) {
    PutIn<uint16_t>(row, 0, type == RowType::kInt8 ? 0x1c00 : 0x2c00);
    PutIn<uint16_t>(row, 2, 0x0400);
  }
  for (uint32_t e = 0; e < dim; ++e, random = random * 1664525u + 1013904223u) {
    const uint32_t byte = random >> 24;
    const float value = static_cast<float>(byte) / 256;
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    switch (type) {
      case RowType::kFloat32:
        PutIn(row, 4 * e, value);
        break;
      case RowType::kBfloat16:
        PutIn<uint16_t>(row, 2 * e, static_cast<uint16_t>(bits >> 16));
        break;
      case RowType::kFloat16:
        PutIn<uint16_t>(row, 2 * e, byte == 0 ? 0 : static_cast<uint16_t>((bits - 0x38000000u) >> 13));
        break;
      case RowType::kInt8:
        row[4 + e] = static_cast<uint8_t>(byte);
        break;
      case RowType::kInt4:
        row[4 + e / 2] = static_cast<uint8_t>(row[4 + e / 2] | byte >> 4 << (e % 2 * 4));
        break;
    }
  }
}

}  // namespace

std::shared_ptr<const EmbeddingTable> MakeDirectTable(RowType type, uint32_t dim, uint64_t rows) {
  TableFileContent content;
  content.row_type = type;
  content.dim = dim;
  content.version = 1;  // with one checksum for all rows
  const uint64_t stride = content.Stride();
  std::string head = content.Bytes();
  head.resize(kRowData);
  const TemporaryFolder folder;
  const std::string path = folder.Path("table.emb");
  std::ofstream file(path, std::ios::binary);
  file.write(head.data(), kRowData);
  std::vector<uint8_t> some(kRowsAtOnce * stride);
  uint32_t crc = 0;
  for (uint64_t first = 0; first < rows; first += kRowsAtOnce) {
    const uint64_t count = std::min(kRowsAtOnce, rows - first);
    std::fill(some.begin(), some.end(), 0);
    for (uint64_t r = 0; r < count; ++r) MakeRow(type, dim, first + r, some.data() + r * stride);
    const auto* bytes = reinterpret_cast<const char*>(some.data());
    crc = tensorflow::crc32c::Extend(crc, bytes, count * stride);
    file.write(bytes, static_cast<std::streamsize>(count * stride));
  }
  Put<uint64_t>(&head, 16, kRowData + rows * stride);
  Put<uint64_t>(&head, 24, rows);
  Put<uint64_t>(&head, 80, kRowData);
  Put<uint64_t>(&head, 88, rows * stride);
  Put<uint32_t>(&head, 96, crc);
  Put<uint32_t>(&head, 252, Crc32c(head.data(), 252));
  file.seekp(0);
  file.write(head.data(), kRowData);
  file.close();
  if (!file) throw std::runtime_error("no place for a table in " + path);
  std::shared_ptr<const EmbeddingTable> table;
  if (absl::Status opened = EmbeddingTable::Open(path, &table); !opened.ok()) {
    throw std::runtime_error(std::string(opened.message()));
  }
  return table;
}

}  // namespace processor::bench
