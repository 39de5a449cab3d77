// SPDX-License-Identifier: Apache-2.0
#include "src/tables/delta_directory.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace processor {
namespace {

constexpr uint32_t kMostNameBytes = 65535, kMostRank = 8;
constexpr size_t kNameShown = 100;

template <typename... Parts>
absl::Status DamagedDirectory(const Parts&... parts) {
  return absl::DataLossError(absl::StrCat("directory: ", parts...));
}

// Names a record in messages: "table 'user/embedding'".
std::string Shown(const char* noun, std::string_view name) {
  return absl::StrCat(noun, " '", absl::Utf8SafeCHexEscape(name.substr(0, kNameShown)),
                      name.size() > kNameShown ? "...'" : "'");
}

bool IsUtf8(std::string_view text) {
  for (size_t i = 0; i < text.size();) {
    const auto first = static_cast<uint8_t>(text[i]);
    const size_t size = first < 0x80 ? 1 : first >> 5 == 6 ? 2 : first >> 4 == 14 ? 3 : first >> 3 == 30 ? 4 : 0;
    if (size == 0 || size > text.size() - i) return false;
    uint32_t point = size == 1 ? first : first & (0x7fu >> size);
    for (size_t k = 1; k < size; ++k) {
      const auto next = static_cast<uint8_t>(text[i + k]);
      if (next >> 6 != 2) return false;
      point = point << 6 | (next & 0x3fu);
    }
    // Longer than necessary, half of a surrogate pair, or beyond the last code point.
    constexpr uint32_t kLeast[] = {0, 0, 0x80, 0x800, 0x10000};
    if (point < kLeast[size] || (point >= 0xd800 && point < 0xe000) || point > 0x10ffff) return false;
    i += size;
  }
  return true;
}

// The arrays of the file, in order: each begins at the next multiple of the alignment.
class Arrays {
 public:
  Arrays(const uint8_t* file, uint64_t end) : file_(file), end_(end) {}

  uint64_t next() const { return AlignedForDelta(at_); }

  /// Returns `count` elements at the next place, or null if there are none or if the file has no place for them; then
  /// `fits()` is false from now on.
  template <typename T>
  const T* Take(uint64_t count) {
    if (count == 0 || !fits_) return nullptr;
    const uint64_t begin = next();
    fits_ = begin <= end_ && count <= (end_ - begin) / sizeof(T);
    if (!fits_) return nullptr;
    gaps_.emplace_back(at_, begin);
    at_ = begin + count * sizeof(T);
    return reinterpret_cast<const T*>(file_ + begin);
  }

  /// Lengthens the array that was taken last.
  const char* TakeBehind(uint64_t size) {
    fits_ = fits_ && size <= end_ - at_;
    if (!fits_) return nullptr;
    const char* bytes = reinterpret_cast<const char*>(file_ + at_);
    at_ += size;
    return bytes;
  }

  bool fits() const { return fits_; }

  /// Checks that the directory follows, and the zeros.
  absl::Status Finish() {
    if (next() != end_) {
      return DamagedDirectory("directory_offset ", end_, ", expected ", next(), " after arrays that end at ", at_);
    }
    gaps_.emplace_back(at_, end_);
    for (const auto& [begin, end] : gaps_) {
      if (!std::all_of(file_ + begin, file_ + end, [](uint8_t byte) { return byte == 0; })) {
        return absl::DataLossError(
            absl::StrCat("bytes between ", begin, " and ", end, " that are set, expected zeros"));
      }
    }
    return absl::OkStatus();
  }

 private:
  const uint8_t* const file_;
  const uint64_t end_;
  uint64_t at_ = kDeltaHeaderBytes;
  bool fits_ = true;
  std::vector<std::pair<uint64_t, uint64_t>> gaps_;
};

// The bytes of the directory, from record to record.
class Records {
 public:
  Records(const uint8_t* bytes, uint64_t size) : bytes_(bytes), left_(size) {}

  template <typename T>
  bool Take(T* value) {
    if (left_ < sizeof(T)) return false;
    std::memcpy(value, bytes_, sizeof(T));
    Skip(sizeof(T));
    return true;
  }

  /// Takes a name that comes after `last` of the records of this kind, which begin with an empty one.
  absl::Status TakeName(const char* noun, std::string_view* last) {
    uint32_t size;
    if (!Take(&size)) return DamagedDirectory("ends before a ", noun);
    if (size < 1 || size > kMostNameBytes) {
      return DamagedDirectory("a ", noun, " with a name of ", size, " bytes, expected 1 to ", kMostNameBytes);
    }
    const uint64_t padding = (8 - (sizeof(size) + size) % 8) % 8;
    if (left_ < size + padding) return DamagedDirectory("ends in the name of a ", noun);
    const std::string_view name(reinterpret_cast<const char*>(bytes_), size);
    const uint8_t* const behind = bytes_ + size;
    if (!IsUtf8(name)) return DamagedDirectory(Shown(noun, name), ": a name that is not UTF-8");
    if (name <= *last) {
      return DamagedDirectory(Shown(noun, name), " after ", Shown(noun, *last), ", expected ascending names");
    }
    if (!std::all_of(behind, behind + padding, [](uint8_t byte) { return byte == 0; })) {
      return DamagedDirectory(Shown(noun, name), ": bytes after the name that are not zero");
    }
    Skip(size + padding);
    *last = name;
    return absl::OkStatus();
  }

  uint64_t left() const { return left_; }
  const uint8_t* Next() const { return bytes_; }
  void Skip(uint64_t size) {
    bytes_ += size;
    left_ -= size;
  }

 private:
  const uint8_t* bytes_;
  uint64_t left_;
};

absl::Status TakeKeys(const std::string& shown, DeltaKeyKind kind, uint64_t count, Arrays* arrays, DeltaKeys* keys) {
  *keys = {kind, static_cast<size_t>(count)};
  if (kind != DeltaKeyKind::kString) {
    keys->integers = arrays->Take<int64_t>(count);
    return absl::OkStatus();
  }
  if (count == 0) return absl::OkStatus();
  const auto* offsets = count == UINT64_MAX ? nullptr : arrays->Take<uint64_t>(count + 1);
  if (offsets == nullptr) return DamagedDirectory(shown, ": ", count, " keys, which do not fit before the directory");
  if (offsets[0] != 0 || !std::is_sorted(offsets, offsets + count + 1)) {
    return DamagedDirectory(shown, ": strings whose offsets are not in order from 0");
  }
  keys->offsets = offsets;
  keys->bytes = arrays->TakeBehind(offsets[count]);
  return absl::OkStatus();
}

absl::Status CheckPlace(const std::string& shown, uint64_t offset, uint64_t expected) {
  if (offset == expected) return absl::OkStatus();
  return DamagedDirectory(shown, ": offset ", offset, ", expected ", expected);
}

absl::Status CheckFit(const std::string& shown, const Arrays& arrays) {
  return arrays.fits() ? absl::OkStatus() : DamagedDirectory(shown, ": arrays that do not fit before the directory");
}

absl::Status TakeTable(Records* records, Arrays* arrays, std::string_view* last, DeltaTable* table) {
  if (absl::Status s = records->TakeName("table", last); !s.ok()) return s;
  const std::string shown = Shown("table", *last);
  uint32_t kind, dim;
  uint64_t changed, deleted, defaults, offset;
  if (!records->Take(&kind) || !records->Take(&dim) || !records->Take(&changed) || !records->Take(&deleted) ||
      !records->Take(&defaults) || !records->Take(&offset)) {
    return DamagedDirectory("ends in ", shown);
  }
  if (kind > 2) return DamagedDirectory(shown, ": key_kind ", kind, ", expected 0-2");
  if (dim < 1) return DamagedDirectory(shown, ": dim 0, expected at least 1");
  table->name = *last;
  table->key_kind = static_cast<DeltaKeyKind>(kind);
  table->dim = dim;
  if (changed == 0 && deleted == 0 && defaults == 0)
    return DamagedDirectory(shown, ": a record without changes, expected some");
  if (table->key_kind == DeltaKeyKind::kRowNumber && (deleted != 0 || defaults != 0)) {
    return DamagedDirectory(shown, ": ", deleted, " deleted and ", defaults,
                            " default rows, expected none: its keys are row numbers");
  }
  if (absl::Status s = CheckPlace(shown, offset, arrays->next()); !s.ok()) return s;
  if (absl::Status s = TakeKeys(shown, table->key_kind, changed, arrays, &table->changed); !s.ok()) return s;
  // Each count is below 2^61 when it is multiplied: its keys or numbers were in the file.
  if (absl::Status s = CheckFit(shown, *arrays); !s.ok()) return s;
  const auto rows = [&](uint64_t count) {
    return arrays->Take<float>(
        static_cast<uint64_t>(std::min<unsigned __int128>(static_cast<unsigned __int128>(count) * dim, UINT64_MAX)));
  };
  table->rows = rows(changed);
  if (absl::Status s = TakeKeys(shown, table->key_kind, deleted, arrays, &table->deleted); !s.ok()) return s;
  const auto* numbers = arrays->Take<uint32_t>(defaults);
  table->default_rows = rows(defaults);
  if (absl::Status s = CheckFit(shown, *arrays); !s.ok()) return s;
  table->default_numbers = {numbers, static_cast<size_t>(defaults)};
  return absl::OkStatus();
}

absl::Status TakeVariable(Records* records, Arrays* arrays, std::string_view* last, DeltaVariable* variable) {
  if (absl::Status s = records->TakeName("variable", last); !s.ok()) return s;
  const std::string shown = Shown("variable", *last);
  uint32_t dtype, rank;
  if (!records->Take(&dtype) || !records->Take(&rank)) return DamagedDirectory("ends in ", shown);
  if (dtype != 0) return DamagedDirectory(shown, ": dtype ", dtype, ", expected 0");
  if (rank > kMostRank) return DamagedDirectory(shown, ": rank ", rank, ", expected at most ", kMostRank);
  variable->name = *last;
  unsigned __int128 elements = 1;
  for (uint32_t i = 0; i < rank; ++i) {
    uint64_t size;
    if (!records->Take(&size)) return DamagedDirectory("ends in ", shown);
    if (size < 1 || size > INT64_MAX) {
      return DamagedDirectory(shown, ": ", size, " in its shape, expected 1 to ", INT64_MAX);
    }
    variable->shape.push_back(static_cast<int64_t>(size));
    elements = std::min<unsigned __int128>(elements * size, UINT64_MAX);
  }
  uint64_t offset;
  if (!records->Take(&offset)) return DamagedDirectory("ends in ", shown);
  if (absl::Status s = CheckPlace(shown, offset, arrays->next()); !s.ok()) return s;
  variable->data = arrays->Take<float>(static_cast<uint64_t>(elements));
  return CheckFit(shown, *arrays);
}

absl::Status TakeStream(Records* records, std::string_view* last, DeltaStream* stream) {
  if (absl::Status s = records->TakeName("stream", last); !s.ok()) return s;
  stream->name = *last;
  return records->Take(&stream->position) ? absl::OkStatus() : DamagedDirectory("ends in ", Shown("stream", *last));
}

template <typename KeyOf>
absl::Status CheckAscending(const DeltaTable& table, const char* keys, size_t count, KeyOf&& key) {
  for (size_t i = 1; i < count; ++i) {
    if (key(i - 1) < key(i)) continue;
    return absl::DataLossError(absl::StrCat(Shown("table", table.name), ": ", keys, " number ", i,
                                            " is not greater than the one before, expected ascending ones"));
  }
  return absl::OkStatus();
}

template <typename KeyOf>
absl::Status CheckKeys(const DeltaTable& table, KeyOf&& key) {
  const DeltaKeys &changed = table.changed, &deleted = table.deleted;
  const auto key_of = [&](const DeltaKeys& keys) { return [&](size_t i) { return key(keys, i); }; };
  if (absl::Status s = CheckAscending(table, "changed key", changed.count, key_of(changed)); !s.ok()) return s;
  if (absl::Status s = CheckAscending(table, "deleted key", deleted.count, key_of(deleted)); !s.ok()) return s;
  for (size_t i = 0, k = 0; i < changed.count && k < deleted.count;) {
    const auto left = key(changed, i), right = key(deleted, k);
    if (left == right) {
      return absl::DataLossError(absl::StrCat(Shown("table", table.name), ": changed key number ", i,
                                              " is also deleted key number ", k, ", expected one of both"));
    }
    ++(left < right ? i : k);
  }
  return absl::OkStatus();
}

absl::Status CheckOrder(const DeltaTable& table) {
  const auto& numbers = table.default_numbers;
  if (absl::Status s = CheckAscending(table, "default row", numbers.size(), [&](size_t i) { return numbers[i]; });
      !s.ok()) {
    return s;
  }
  if (table.key_kind == DeltaKeyKind::kRowNumber && table.changed.integers[0] < 0) {
    return absl::DataLossError(
        absl::StrCat(Shown("table", table.name), ": row number ", table.changed.integers[0], ", expected at least 0"));
  }
  if (table.key_kind != DeltaKeyKind::kString) {
    return CheckKeys(table, [](const DeltaKeys& keys, size_t i) { return keys.integers[i]; });
  }
  return CheckKeys(table, [](const DeltaKeys& keys, size_t i) { return keys.string(i); });
}

// No name is both a table and a variable.
absl::Status CheckNames(const DeltaContent& content) {
  auto variable = content.variables.begin();
  for (const DeltaTable& table : content.tables) {
    while (variable != content.variables.end() && variable->name < table.name) ++variable;
    if (variable == content.variables.end()) break;
    if (variable->name == table.name) {
      return DamagedDirectory(Shown("table", table.name), " is a variable, too, expected one of both");
    }
  }
  return absl::OkStatus();
}

// Takes as many records as were counted. Memory is taken as they are found, not for a count that may be wrong.
template <typename Record, typename TakeRecord>
absl::Status TakeAll(uint32_t count, std::vector<Record>* found, TakeRecord&& take) {
  std::string_view last;
  for (uint32_t i = 0; i < count; ++i) {
    if (absl::Status s = take(&last, &found->emplace_back()); !s.ok()) return s;
  }
  return absl::OkStatus();
}

// Takes what is after the records: the data of compatible features, of which unknown ones are the last.
absl::Status TakeFeatures(const DeltaHeader& header, Records* records, absl::Span<const ChainHash>* chains) {
  if ((header.compatible & kListsChains) != 0) {
    const uint64_t count = header.last_epoch - header.first_epoch;
    if (count > records->left() / sizeof(ChainHash)) {
      return DamagedDirectory("ends in the chain hashes of ", count, " epochs");
    }
    *chains = {reinterpret_cast<const ChainHash*>(records->Next()), static_cast<size_t>(count)};
    records->Skip(count * sizeof(ChainHash));
  }
  if (records->left() == 0 || (header.compatible & ~kListsChains) != 0) return absl::OkStatus();
  return DamagedDirectory(records->left(), " bytes after the last record, expected none");
}

}  // namespace

absl::Status ReadDeltaDirectory(const uint8_t* file, const DeltaHeader& header, DeltaContent* content) {
  Records records(file + header.directory_offset, header.directory_size);
  Arrays arrays(file, header.directory_offset);
  uint32_t tables, variables, streams, zero;
  if (!records.Take(&tables) || !records.Take(&variables) || !records.Take(&streams) || !records.Take(&zero)) {
    return DamagedDirectory("ends in its counts");
  }
  if (zero != 0) return DamagedDirectory("reserved bytes that are not zero");
  DeltaContent found;
  absl::Status status = TakeAll(tables, &found.tables, [&](std::string_view* last, DeltaTable* table) {
    return TakeTable(&records, &arrays, last, table);
  });
  if (!status.ok()) return status;
  status = TakeAll(variables, &found.variables, [&](std::string_view* last, DeltaVariable* variable) {
    return TakeVariable(&records, &arrays, last, variable);
  });
  if (!status.ok()) return status;
  status = TakeAll(streams, &found.streams,
                   [&](std::string_view* last, DeltaStream* stream) { return TakeStream(&records, last, stream); });
  if (!status.ok()) return status;
  if (absl::Status s = TakeFeatures(header, &records, &found.chains); !s.ok()) return s;
  if (absl::Status s = CheckNames(found); !s.ok()) return s;
  if (absl::Status s = arrays.Finish(); !s.ok()) return s;
  for (const DeltaTable& table : found.tables) {
    if (absl::Status s = CheckOrder(table); !s.ok()) return s;
  }
  *content = std::move(found);
  return absl::OkStatus();
}

}  // namespace processor
