// SPDX-License-Identifier: Apache-2.0
#include "src/tables/embedding_table.h"

#include <sys/mman.h>

#include <algorithm>
#include <filesystem>
#include <mutex>
#include <utility>

#include "absl/base/casts.h"
#include "absl/strings/str_cat.h"
#include "src/tables/table_registry.h"

namespace processor {
namespace {

constexpr uint64_t kIndexPageBytes = 4096;

static_assert(kZeroRow == kNotFound, "an index knows nothing of policies");

// Tells tables of one file apart.
std::string StorageName(const TableStorage& storage) {
  if (storage.resident) return "resident";
  return storage.tiered ? absl::StrCat("tiered ", absl::Hex(absl::bit_cast<uint64_t>(storage.cache_share))) : "";
}

}  // namespace

absl::Status EmbeddingTable::Open(const std::string& path, const TableStorage& storage,
                                  std::shared_ptr<const EmbeddingTable>* table) {
  TableFile file(path);
  if (absl::Status s = file.Open(); !s.ok()) return s;
  const std::shared_ptr<TableRegistry::Slot> slot =
      TableRegistry::Global().SlotOf(file.identity(), StorageName(storage));
  std::lock_guard<std::mutex> lock(slot->mutex);
  *table = slot->table.lock();
  if (*table != nullptr) return absl::OkStatus();
  if (absl::Status s = Load(file, storage, table); !s.ok()) return s;
  slot->table = *table;
  return absl::OkStatus();
}

absl::Status EmbeddingTable::Load(const TableFile& file, const TableStorage& storage,
                                  std::shared_ptr<const EmbeddingTable>* table) {
  uint8_t bytes[kTableHeaderBytes] = {};
  const size_t header_bytes = std::min<uint64_t>(kTableHeaderBytes, file.identity().size);
  if (absl::Status s = file.Read(0, header_bytes, bytes); !s.ok()) return s;
  std::shared_ptr<EmbeddingTable> loaded(new EmbeddingTable);
  if (absl::Status s = ParseTableHeader(bytes, file.identity().size, &loaded->header_); !s.ok()) return file.Named(s);
  loaded->path_ = file.path();
  loaded->runs_ = RowRuns(loaded->header_);
  if (absl::Status s = storage.resident ? loaded->OpenResident(file, bytes, storage)
                       : storage.tiered ? loaded->OpenTiered(file, storage)
                                        : loaded->MapFile(file);
      !s.ok()) {
    return s;
  }

  *table = loaded;
  const std::string name = std::filesystem::path(file.path()).filename().string();
  if (IsNamedByHash(name)) {
    // The header too, which holds all checksums: a name is easily given.
    const std::string content =
        name + std::string(reinterpret_cast<const char*>(bytes), kTableHeaderBytes) + StorageName(storage);
    *table = TableRegistry::Global().Share(content, *table);
  }
  if (*table == loaded) loaded->mapping_.Prefault();
  return absl::OkStatus();
}

absl::Status EmbeddingTable::MapFile(const TableFile& file) {
  if (absl::Status s = CheckTableContents(file, header_); !s.ok()) return s;
  if (absl::Status s = file.Map(&mapping_); !s.ok()) return s;
  const uint8_t* const data = mapping_.data();
  row_data_ = data + header_.row_data.offset;
  SetIndex(data + header_.index.offset, data + header_.key_offsets.offset, data + header_.key_bytes.offset);
  return absl::OkStatus();
}

absl::Status EmbeddingTable::OpenResident(const TableFile& file, const uint8_t* header, const TableStorage& storage) {
  if (absl::Status s = ResidentTable::Open(file, header, header_, storage.share_folder, &resident_); !s.ok()) return s;
  row_data_ = resident_->rows();
  SetIndex(resident_->index(), resident_->key_offsets(), resident_->key_bytes());
  return absl::OkStatus();
}

absl::Status EmbeddingTable::OpenTiered(const TableFile& file, const TableStorage& storage) {
  std::unique_ptr<const DirectFile> direct;
  if (absl::Status s = DirectFile::Open(file, &direct); !s.ok()) return s;
  if (absl::Status s = ReadTableParts(file, *direct, header_, &parts_); !s.ok()) return s;
  // Pages of the file that somebody has read, as who wrote it: what is needed of them is in memory now, or comes past them.
  file.Forget();
  SetIndex(parts_.index.data(), parts_.key_offsets.data(), parts_.key_bytes.data());
  const double share = std::clamp(storage.cache_share, 0.0, 2.0);
  const auto cache_bytes = static_cast<uint64_t>(share * static_cast<double>(header_.row_data.size));
  return TieredRows::Open(file, std::move(direct), header_, std::move(parts_.checksums), cache_bytes, &tiered_);
}

void EmbeddingTable::SetIndex(const uint8_t* index, const uint8_t* key_offsets, const uint8_t* key_bytes) {
  index_.buckets = reinterpret_cast<const TableBucket*>(index);
  index_.num_buckets = header_.buckets;
  index_.home_buckets = header_.home_buckets;
  index_.key_offsets = reinterpret_cast<const uint64_t*>(key_offsets);
  index_.key_bytes = reinterpret_cast<const char*>(key_bytes);
}

bool EmbeddingTable::MapRowsAt(uint8_t* address, size_t bytes) const {
  if (resident_ != nullptr) return resident_->memory().MapAt(address, bytes);
  // Old size 0: a second mapping of the same pages, also if the file's name is gone.
  if (mremap(const_cast<uint8_t*>(row_data_), 0, bytes, MREMAP_MAYMOVE | MREMAP_FIXED, static_cast<void*>(address)) ==
      MAP_FAILED) {
    return false;
  }
  madvise(address, bytes, MADV_HUGEPAGE);  // advice: an error changes nothing
  return true;
}

void EmbeddingTable::DropPages(size_t begin, size_t bytes) const {
  if (resident_ != nullptr) return;
  madvise(const_cast<uint8_t*>(row_data_) + begin, bytes, MADV_DONTNEED);
}

void EmbeddingTable::DropIndexPages() const {
  if (mapping_.data() == nullptr) return;
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
