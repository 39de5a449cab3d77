// SPDX-License-Identifier: Apache-2.0
#include "src/tables/resident_table.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <map>
#include <mutex>
#include <new>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "src/base/log.h"
#include "src/base/sha256.h"
#include "src/tables/direct_file.h"
#include "src/tables/table_check.h"
#include "src/tables/table_crc.h"

namespace processor {
namespace {

using Clock = std::chrono::steady_clock;

// Changes with the layout of the memory, so that processes of other versions do not take it for theirs.
constexpr std::string_view kLayout = "recprocessor table 1";
constexpr uint64_t kSectionAlignment = 64;
constexpr size_t kNameDigits = 64;
// A process that loads tells so every tenth of a second.
constexpr auto kTouchEvery = std::chrono::milliseconds(100);
// One that has not told so for this time does not get on.
constexpr auto kPatience = std::chrono::seconds(2);
constexpr auto kLookEvery = std::chrono::milliseconds(20);

uint64_t Aligned(uint64_t offset) { return (offset + kSectionAlignment - 1) / kSectionAlignment * kSectionAlignment; }

// The tables of this process by their content. A slot is locked while its table is loaded.
struct ResidentSlot {
  std::mutex mutex;
  std::weak_ptr<const ResidentTable> table;
};

std::shared_ptr<ResidentSlot> ResidentSlotOf(const std::string& content) {
  static auto* const mutex = new std::mutex;
  static auto* const slots = new std::map<std::string, std::weak_ptr<ResidentSlot>>;
  if (content.empty()) return std::make_shared<ResidentSlot>();
  std::lock_guard<std::mutex> lock(*mutex);
  for (auto it = slots->begin(); it != slots->end();) it = it->second.expired() ? slots->erase(it) : std::next(it);
  std::weak_ptr<ResidentSlot>& known = (*slots)[content];
  std::shared_ptr<ResidentSlot> slot = known.lock();
  if (slot == nullptr) known = slot = std::make_shared<ResidentSlot>();
  return slot;
}

// Names a content by a hash of the file's name, of its header and of its checksums: a name alone is easily given. Empty if
// the file has no such name.
absl::Status NameContent(const TableFile& file, const uint8_t* header_bytes, const TableHeader& header,
                         std::string* content) {
  content->clear();
  const std::string name = std::filesystem::path(file.path()).filename().string();
  if (!IsNamedByHash(name)) return absl::OkStatus();
  std::vector<uint8_t> checksums;
  try {
    checksums.resize(header.checksums.size);
  } catch (const std::bad_alloc&) {
    return file.Named(absl::ResourceExhaustedError("no memory for its checksums"));
  }
  if (absl::Status s = file.Read(header.checksums.offset, checksums.size(), checksums.data()); !s.ok()) return s;
  if (ExtendTableCrc(0, checksums.data(), checksums.size()) != header.checksums.crc) {
    return file.Named(absl::DataLossError("checksums: wrong checksum"));
  }
  Sha256 hash;
  hash.Update(kLayout);
  hash.Update(name);
  hash.Update({reinterpret_cast<const char*>(header_bytes), kTableHeaderBytes});
  hash.Update({reinterpret_cast<const char*>(checksums.data()), checksums.size()});
  *content = hash.Finish();
  return absl::OkStatus();
}

}  // namespace

bool IsNamedByHash(const std::string& name) {
  return name.size() == 64 + 4 && std::string_view(name).substr(64) == ".emb" &&
         std::all_of(name.begin(), name.begin() + 64,
                     [](char c) { return absl::ascii_isxdigit(static_cast<unsigned char>(c)); });
}

ResidentTable::ResidentTable(const TableHeader& header) {
  index_ = Aligned(header.row_data.size);
  key_offsets_ = Aligned(index_ + header.index.size);
  key_bytes_ = Aligned(key_offsets_ + header.key_offsets.size);
  name_ = Aligned(key_bytes_ + header.key_bytes.size);
  bytes_ = name_ + kNameDigits;
}

absl::Status ResidentTable::Open(const TableFile& file, const uint8_t* header_bytes, const TableHeader& header,
                                 const std::string& folder, std::shared_ptr<const ResidentTable>* table) {
  std::string content;
  if (absl::Status s = NameContent(file, header_bytes, header, &content); !s.ok()) return s;
  const std::shared_ptr<ResidentSlot> slot = ResidentSlotOf(content);
  std::lock_guard<std::mutex> lock(slot->mutex);
  *table = slot->table.lock();
  if (*table != nullptr) return absl::OkStatus();
  struct WithSlot {
    std::shared_ptr<ResidentSlot> slot;  // known as long as the table is
    ResidentTable table;
  };
  const std::shared_ptr<WithSlot> made(new WithSlot{slot, ResidentTable(header)});
  if (absl::Status s = made->table.FindOrLoad(file, header, content, folder); !s.ok()) return s;
  *table = std::shared_ptr<const ResidentTable>(made, &made->table);
  slot->table = *table;
  return absl::OkStatus();
}

absl::Status ResidentTable::FindOrLoad(const TableFile& file, const TableHeader& header, const std::string& content,
                                       const std::string& folder_path) {
  LockedFile turn;
  ResidentFolder folder;
  bool shares = !content.empty();
  if (shares) {
    if (absl::Status s = ResidentFolder::Open(folder_path, &folder); !s.ok()) {
      Log(Severity::kWarning,
          absl::StrCat("table '", file.path(), "': not shared with other processes: ", s.message()));
      shares = false;
    }
  }
  if (shares) {
    int64_t touched_ns = 0, seen_ns = 0;
    for (Clock::time_point seen = Clock::now();;) {
      if (Receive(folder, content)) return absl::OkStatus();
      if (folder.TakeTurn(content, &turn, &touched_ns)) break;
      if (touched_ns != seen_ns) {
        seen_ns = touched_ns;
        seen = Clock::now();
      } else if (Clock::now() - seen > kPatience) {
        Log(Severity::kWarning,
            absl::StrCat("table '", file.path(), "': another process that loads it does not get on; ",
                         "it is loaded here, too"));
        break;
      }
      std::this_thread::sleep_for(kLookEvery);
    }
    // The process that had the turn may have offered it just before.
    if (Receive(folder, content)) return absl::OkStatus();
  }
  if (absl::Status s = Load(file, header, content, turn); !s.ok()) return s;
  if (!shares) return absl::OkStatus();
  if (absl::Status s = folder.Offer(content, memory_->descriptor(), &record_); !s.ok()) {
    Log(Severity::kWarning, absl::StrCat("table '", file.path(), "': not shared with other processes: ", s.message()));
  }
  return absl::OkStatus();
}

bool ResidentTable::Receive(const ResidentFolder& folder, const std::string& content) {
  const bool found = folder.Find(content, [&](int descriptor) {
    std::unique_ptr<ResidentMemory> memory;
    if (!ResidentMemory::Adopt(descriptor, bytes_, &memory).ok()) return false;
    if (std::memcmp(memory->data() + name_, content.data(), kNameDigits) != 0) return false;
    memory_ = std::move(memory);
    return true;
  });
  if (!found) return false;
  is_received_ = true;
  // Others can still find it when the process that has read the file is gone.
  folder.Offer(content, memory_->descriptor(), &record_).IgnoreError();
  return true;
}

absl::Status ResidentTable::Load(const TableFile& file, const TableHeader& header, const std::string& content,
                                 const LockedFile& turn) {
  Clock::time_point touched = Clock::now();
  const auto touch = [&] {
    if (Clock::now() - touched < kTouchEvery) return;
    turn.Touch();
    touched = Clock::now();
  };
  std::unique_ptr<ResidentMemory> memory;
  if (absl::Status s = ResidentMemory::Create("recprocessor-table", bytes_, touch, &memory); !s.ok()) {
    return file.Named(s);
  }
  uint8_t* const data = memory->writable();
  TableCopy copy;
  copy.rows = data;
  copy.index = data + index_;
  copy.key_offsets = data + key_offsets_;
  copy.key_bytes = data + key_bytes_;
  copy.on_progress = touch;
  std::unique_ptr<const DirectFile> direct;
  if (absl::Status s = DirectFile::Open(file, &direct); !s.ok()) return s;
  if (absl::Status s = CopyTable(file, *direct, header, copy); !s.ok()) return s;
  std::memcpy(data + name_, content.data(), content.size());
  if (absl::Status s = memory->Seal(); !s.ok()) return file.Named(s);
  memory_ = std::move(memory);
  return absl::OkStatus();
}

}  // namespace processor
