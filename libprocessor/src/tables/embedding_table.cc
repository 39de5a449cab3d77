// SPDX-License-Identifier: Apache-2.0
#include "src/tables/embedding_table.h"

#include <sys/mman.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "src/tables/table_check.h"
#include "src/tables/table_registry.h"

namespace processor {
namespace {

constexpr uint64_t kIndexPageBytes = 4096;

static_assert(kZeroRow == kNotFound, "an index knows nothing of policies");

// Is the file called after the SHA-256 of its content?
bool IsNamedByHash(const std::string& name) {
  return name.size() == 64 + 4 && std::string_view(name).substr(64) == ".emb" &&
         std::all_of(name.begin(), name.begin() + 64,
                     [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); });
}

}  // namespace

absl::Status EmbeddingTable::Open(const std::string& path, std::shared_ptr<const EmbeddingTable>* table) {
  TableFile file(path);
  if (absl::Status s = file.Open(); !s.ok()) return s;
  const std::shared_ptr<TableRegistry::Slot> slot = TableRegistry::Global().SlotOf(file.identity());
  std::lock_guard<std::mutex> lock(slot->mutex);
  *table = slot->table.lock();
  if (*table != nullptr) return absl::OkStatus();
  if (absl::Status s = Load(file, table); !s.ok()) return s;
  slot->table = *table;
  return absl::OkStatus();
}

absl::Status EmbeddingTable::Load(const TableFile& file, std::shared_ptr<const EmbeddingTable>* table) {
  uint8_t bytes[kTableHeaderBytes] = {};
  const size_t header_bytes = std::min<uint64_t>(kTableHeaderBytes, file.identity().size);
  if (absl::Status s = file.Read(0, header_bytes, bytes); !s.ok()) return s;
  std::shared_ptr<EmbeddingTable> loaded(new EmbeddingTable);
  TableHeader& header = loaded->header_;
  if (absl::Status s = ParseTableHeader(bytes, file.identity().size, &header); !s.ok()) return file.Named(s);
  if (absl::Status s = CheckTableContents(file, header); !s.ok()) return s;
  if (absl::Status s = file.Map(&loaded->mapping_); !s.ok()) return s;

  const uint8_t* data = loaded->mapping_.data();
  loaded->path_ = file.path();
  loaded->row_data_ = data + header.row_data.offset;
  TableIndex& index = loaded->index_;
  index.buckets = reinterpret_cast<const TableBucket*>(data + header.index.offset);
  index.num_buckets = header.buckets;
  index.home_buckets = header.home_buckets;
  index.key_offsets = reinterpret_cast<const uint64_t*>(data + header.key_offsets.offset);
  index.key_bytes = reinterpret_cast<const char*>(data + header.key_bytes.offset);

  *table = loaded;
  const std::string name = std::filesystem::path(file.path()).filename().string();
  if (IsNamedByHash(name)) {
    // The header too, which holds all checksums: a name is easily given.
    const std::string content = name + std::string(reinterpret_cast<const char*>(bytes), kTableHeaderBytes);
    *table = TableRegistry::Global().Share(content, *table);
  }
  if (*table == loaded) loaded->mapping_.Prefault();
  return absl::OkStatus();
}

void EmbeddingTable::DropPages(size_t begin, size_t bytes) const {
  madvise(const_cast<uint8_t*>(row_data_) + begin, bytes, MADV_DONTNEED);
}

void EmbeddingTable::DropIndexPages() const {
  for (const TableSection& section : {header_.index, header_.key_offsets, header_.key_bytes}) {
    // Pages at the ends may have bytes of other sections.
    const uint64_t begin = (section.offset + kIndexPageBytes - 1) / kIndexPageBytes * kIndexPageBytes;
    const uint64_t end = (section.offset + section.size) / kIndexPageBytes * kIndexPageBytes;
    if (begin >= end) continue;
    madvise(const_cast<uint8_t*>(mapping_.data()) + begin, static_cast<size_t>(end - begin), MADV_DONTNEED);
  }
}

uint32_t EmbeddingTable::AbsentRow(int64_t key) const {
  if (header_.absent_key == AbsentKey::kZeros) return kZeroRow;
  if (header_.absent_key == AbsentKey::kError) return kRefusedRow;
  const auto divisor = static_cast<int64_t>(header_.default_rows);
  const int64_t remainder = key % divisor;
  return static_cast<uint32_t>(header_.rows + static_cast<uint64_t>(remainder < 0 ? remainder + divisor : remainder));
}

uint32_t EmbeddingTable::AbsentRow(const tensorflow::tstring& key) const {
  if (header_.absent_key == AbsentKey::kZeros) return kZeroRow;
  if (header_.absent_key == AbsentKey::kError) return kRefusedRow;
  return static_cast<uint32_t>(header_.rows + StringKey({key.data(), key.size()}) % header_.default_rows);
}

template <typename Key>
void EmbeddingTable::FillAbsent(absl::Span<const Key> keys, uint32_t* rows) const {
  if (header_.absent_key == AbsentKey::kZeros) return;  // what the index wrote
  for (size_t i = 0; i < keys.size(); ++i) {
    if (rows[i] == kNotFound) rows[i] = AbsentRow(keys[i]);
  }
}

void EmbeddingTable::FetchIndex(absl::Span<const int64_t> keys) const {
  if (header_.index_kind != IndexKind::kInt64) return;
  for (const int64_t key : keys) index_.Fetch(static_cast<uint64_t>(key));
}

void EmbeddingTable::FetchIndex(absl::Span<const tensorflow::tstring> keys) const {
  if (header_.index_kind != IndexKind::kString) return;
  for (const tensorflow::tstring& key : keys) index_.Fetch(StringKey({key.data(), key.size()}));
}

size_t EmbeddingTable::FindKeys(absl::Span<const int64_t> keys, uint32_t* rows) const {
  if (header_.index_kind == IndexKind::kString) {
    std::fill_n(rows, keys.size(), kNotFound);
    return keys.size();
  }
  return header_.index_kind == IndexKind::kDirect ? FindDirect(keys, header_.rows, rows) : index_.Find(keys, rows);
}

size_t EmbeddingTable::FindKeys(absl::Span<const tensorflow::tstring> keys, uint32_t* rows) const {
  if (header_.index_kind == IndexKind::kString) return index_.Find(keys, rows);
  std::fill_n(rows, keys.size(), kNotFound);
  return keys.size();
}

void EmbeddingTable::FindRows(absl::Span<const int64_t> keys, uint32_t* rows) const {
  if (header_.index_kind == IndexKind::kString) return static_cast<void>(std::fill_n(rows, keys.size(), kRefusedRow));
  if (FindKeys(keys, rows) != 0) FillAbsent(keys, rows);
}

void EmbeddingTable::FindRows(absl::Span<const tensorflow::tstring> keys, uint32_t* rows) const {
  if (header_.index_kind != IndexKind::kString) return static_cast<void>(std::fill_n(rows, keys.size(), kRefusedRow));
  if (FindKeys(keys, rows) != 0) FillAbsent(keys, rows);
}

}  // namespace processor
