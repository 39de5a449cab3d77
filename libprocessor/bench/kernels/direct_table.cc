// SPDX-License-Identifier: Apache-2.0
#include "kernels/direct_table.h"

#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <stdexcept>
#include <string>
#include <vector>

#include "src/tables/table_header.h"
#include "tensorflow/core/lib/hash/crc32c.h"

namespace processor::bench {
namespace {

constexpr uint64_t kRowData = 4096;
constexpr uint64_t kRowsAtOnce = 1 << 14;

template <typename T>
void Put(uint8_t* bytes, size_t offset, T value) {
  std::memcpy(bytes + offset, &value, sizeof(T));
}

// A row of numbers between 0 and 1.
void MakeRow(RowType type, uint32_t dim, uint64_t number, uint8_t* row) {
  uint32_t random = static_cast<uint32_t>(number * 2654435761u) | 1;
  const bool quantized = type == RowType::kInt8 || type == RowType::kInt4;
  // Half: 2^-8 or 2^-4, and 2^-14.
  if (quantized) {
    Put<uint16_t>(row, 0, type == RowType::kInt8 ? 0x1c00 : 0x2c00);
    Put<uint16_t>(row, 2, 0x0400);
  }
  for (uint32_t e = 0; e < dim; ++e, random = random * 1664525u + 1013904223u) {
    const uint32_t byte = random >> 24;
    const float value = static_cast<float>(byte) / 256;
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    switch (type) {
      case RowType::kFloat32:
        Put(row, 4 * e, value);
        break;
      case RowType::kBfloat16:
        Put<uint16_t>(row, 2 * e, static_cast<uint16_t>(bits >> 16));
        break;
      case RowType::kFloat16:
        Put<uint16_t>(row, 2 * e, byte == 0 ? 0 : static_cast<uint16_t>((bits - 0x38000000u) >> 13));
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

// A file that is removed when it is left.
class File {
 public:
  File() : path_((std::filesystem::temp_directory_path() / "bench-table-XXXXXX").string()) {
    const int descriptor = mkstemp(path_.data());
    stream_ = descriptor < 0 ? nullptr : fdopen(descriptor, "wb");
    if (stream_ == nullptr) throw std::runtime_error("no temporary file");
  }
  ~File() {
    if (stream_ != nullptr) std::fclose(stream_);
    unlink(path_.c_str());
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;

  void Write(const void* bytes, size_t size) {
    if (std::fwrite(bytes, 1, size, stream_) != size) throw std::runtime_error("no place for a table in " + path_);
  }
  void Rewind() { std::rewind(stream_); }
  const std::string& Close() {
    const bool failed = std::fclose(stream_) != 0;
    stream_ = nullptr;
    if (failed) throw std::runtime_error("no place for a table in " + path_);
    return path_;
  }

 private:
  std::string path_;
  std::FILE* stream_;
};

}  // namespace

std::shared_ptr<const EmbeddingTable> MakeDirectTable(RowType type, uint32_t dim, uint64_t rows) {
  const uint64_t row_bytes = RowBytes(type, dim);
  const uint64_t stride = row_bytes < 4 ? 2 : (row_bytes + 3) / 4 * 4;
  File file;
  std::vector<uint8_t> head(kRowData), some(kRowsAtOnce * stride);
  file.Write(head.data(), head.size());
  uint32_t crc = 0;
  for (uint64_t first = 0; first < rows; first += kRowsAtOnce) {
    const uint64_t count = std::min(kRowsAtOnce, rows - first);
    std::fill(some.begin(), some.end(), 0);
    for (uint64_t r = 0; r < count; ++r) MakeRow(type, dim, first + r, some.data() + r * stride);
    const auto* bytes = reinterpret_cast<const char*>(some.data());
    crc = tensorflow::crc32c::Extend(crc, bytes, count * stride);
    file.Write(bytes, count * stride);
  }
  std::memcpy(head.data(), "RECEMB\r\n", 8);
  Put<uint32_t>(head.data(), 8, kTableVersion);
  Put<uint32_t>(head.data(), 12, kTableHeaderBytes);
  Put<uint64_t>(head.data(), 16, kRowData + rows * stride);
  Put<uint64_t>(head.data(), 24, rows);
  Put<uint32_t>(head.data(), 40, dim);
  Put<uint32_t>(head.data(), 44, static_cast<uint32_t>(type));
  Put<uint32_t>(head.data(), 48, static_cast<uint32_t>(stride));
  Put<uint64_t>(head.data(), 80, kRowData);
  Put<uint64_t>(head.data(), 88, rows * stride);
  Put<uint32_t>(head.data(), 96, crc);
  Put<uint32_t>(head.data(), 252, tensorflow::crc32c::Value(reinterpret_cast<const char*>(head.data()), 252));
  file.Rewind();
  file.Write(head.data(), head.size());
  std::shared_ptr<const EmbeddingTable> table;
  if (absl::Status opened = EmbeddingTable::Open(file.Close(), &table); !opened.ok()) {
    throw std::runtime_error(std::string(opened.message()));
  }
  return table;
}

}  // namespace processor::bench
