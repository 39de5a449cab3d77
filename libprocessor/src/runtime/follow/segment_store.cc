// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/follow/segment_store.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/sha256.h"

namespace processor {
namespace {

constexpr size_t kHashDigits = 16;

absl::Status CopyError(const std::string& path, int error) {
  return absl::ErrnoToStatus(error, absl::StrCat("copy of a segment '", path, "': cannot be written"));
}

class OpenFile {
 public:
  OpenFile(const std::string& path, int flags) : file_(open(path.c_str(), flags | O_CLOEXEC, 0444)) {}
  ~OpenFile() {
    if (file_ >= 0) close(file_);
  }
  OpenFile(const OpenFile&) = delete;
  OpenFile& operator=(const OpenFile&) = delete;
  int get() const { return file_; }

 private:
  const int file_;
};

bool WriteWhole(int file, absl::Span<const uint8_t> bytes) {
  while (!bytes.empty()) {
    const ssize_t written = write(file, bytes.data(), bytes.size());
    if (written < 0 && errno == EINTR) continue;
    if (written <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(written));
  }
  return true;
}

bool HasBytes(const std::string& path, absl::Span<const uint8_t> bytes) {
  const OpenFile file(path, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  std::array<uint8_t, 65536> read_bytes;
  while (file.get() >= 0) {
    const ssize_t count = read(file.get(), read_bytes.data(), read_bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count == 0) return bytes.empty();
    if (count < 0 || static_cast<size_t>(count) > bytes.size()) return false;
    if (std::memcmp(read_bytes.data(), bytes.data(), static_cast<size_t>(count)) != 0) return false;
    bytes.remove_prefix(static_cast<size_t>(count));
  }
  return false;
}

bool AreOneFile(const std::string& path, const std::string& other) {
  struct stat first{}, second{};
  return stat(path.c_str(), &first) == 0 && stat(other.c_str(), &second) == 0 && first.st_dev == second.st_dev &&
         first.st_ino == second.st_ino;
}

absl::Status FlushPath(const std::string& path) {
  const OpenFile file(path, O_RDONLY);
  return file.get() >= 0 && fsync(file.get()) == 0 ? absl::OkStatus() : CopyError(path, errno);
}

absl::Status MakeStoreFolder(const std::string& path) {
  return mkdir(path.c_str(), 0755) == 0 || errno == EEXIST ? absl::OkStatus() : CopyError(path, errno);
}

// Reads what the copy of a segment says about itself; a copy that is read for its content is checked as a whole.
absl::Status ReadHeader(const std::string& path, DeltaHeader* header) {
  const OpenFile file(path, O_RDONLY);
  struct stat found{};
  uint8_t bytes[kDeltaHeaderBytes];
  if (file.get() < 0 || fstat(file.get(), &found) != 0 || pread(file.get(), bytes, sizeof bytes, 0) != sizeof bytes) {
    return absl::DataLossError(absl::StrCat("'", path, "': cannot be read"));
  }
  if (absl::Status s = ParseDeltaHeader(bytes, static_cast<uint64_t>(found.st_size), header); !s.ok()) return s;
  if (header->compacted()) return absl::OkStatus();
  const off_t hash = found.st_size - static_cast<off_t>(header->chain.size());
  const ssize_t size = pread(file.get(), header->chain.data(), header->chain.size(), hash);
  return size == static_cast<ssize_t>(header->chain.size()) ? absl::OkStatus() : absl::DataLossError(path);
}

// Removes what was not completed when a process ended: names with a dot that are not of this one.
void RemoveAbandoned(const std::string& folder) {
  const std::unique_ptr<DIR, int (*)(DIR*)> opened(opendir(folder.c_str()), closedir);
  if (opened == nullptr) return;
  const std::string own = absl::StrCat(".", getpid(), ".");
  while (const dirent* entry = readdir(opened.get())) {
    const std::string name = entry->d_name;
    if (name.size() > 2 && name[0] == '.' && name.rfind(own, 0) != 0) unlink(absl::StrCat(folder, "/", name).c_str());
  }
}

}  // namespace

std::string SegmentStore::NamePrefix(const std::string& timeline) {
  Sha256 hash;
  hash.Update(timeline);
  return hash.Finish().substr(0, kHashDigits) + "-";
}

std::shared_ptr<SegmentStore> SegmentStore::Of(const std::string& parent, const std::string& timeline,
                                               const DeltaLineage& lineage) {
  static std::mutex mutex;
  static auto* const stores = new std::map<std::string, std::weak_ptr<SegmentStore>>();
  const std::string folder = absl::StrCat(parent, "/", NamePrefix(timeline), HexText(lineage));
  std::lock_guard<std::mutex> lock(mutex);
  std::weak_ptr<SegmentStore>& known = (*stores)[folder];
  std::shared_ptr<SegmentStore> store = known.lock();
  if (store == nullptr) {
    store.reset(new SegmentStore(folder, lineage));
    known = store;
    RemoveAbandoned(folder);
  }
  return store;
}

std::string SegmentStore::PathOf(const DeltaSegment& segment) const {
  return absl::StrCat(folder(), "/", DeltaFileName(segment.header().first_epoch, segment.header().last_epoch));
}

absl::Status SegmentStore::Keep(const DeltaSegment& segment, bool* added) {
  std::lock_guard<std::mutex> lock(mutex_);
  return KeepLocked(segment, added);
}

absl::Status SegmentStore::KeepLocked(const DeltaSegment& segment, bool* added) {
  const std::string path = PathOf(segment);
  *added = false;
  if (absl::Status s = MakeStoreFolder(folder().substr(0, folder().rfind('/'))); !s.ok()) return s;
  if (absl::Status s = MakeStoreFolder(folder()); !s.ok()) return s;
  if (linkat(AT_FDCWD, segment.path().c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW) != 0) {
    if (AreOneFile(path, segment.path()) || HasBytes(path, segment.bytes())) return absl::OkStatus();
    if (absl::Status s = Replace(segment, path); !s.ok()) return s;
  }
  *added = folder_changed_ = true;
  return absl::OkStatus();
}

// Puts a copy in the place of what is there: nothing, a damaged file, or a segment of another history, which ends there.
absl::Status SegmentStore::Replace(const DeltaSegment& segment, const std::string& path) {
  DeltaHeader former;
  if (ReadHeader(path, &former).ok() && former.chain != segment.header().chain) {
    std::vector<NamedEpochs> names;
    if (absl::Status s = ListSegments(folder(), &names); !s.ok()) return s;
    for (const NamedEpochs& name : names) {
      if (name.last >= segment.header().first_epoch) unlink(absl::StrCat(folder(), "/", name.FileName()).c_str());
    }
  }
  return Copy(segment, path);
}

absl::Status SegmentStore::Copy(const DeltaSegment& segment, const std::string& path) {
  const std::string hidden = absl::StrCat(folder(), "/.", getpid(), ".copy");
  unlink(hidden.c_str());
  int error = 0;
  {
    const OpenFile file(hidden, O_WRONLY | O_CREAT | O_EXCL);
    if (file.get() < 0 || !WriteWhole(file.get(), segment.bytes())) error = errno;
  }
  if (error == 0 && rename(hidden.c_str(), path.c_str()) != 0) error = errno;
  if (error == 0) {
    unflushed_.push_back(path);
    return absl::OkStatus();
  }
  unlink(hidden.c_str());
  return CopyError(path, error);
}

absl::Status SegmentStore::Flush() {
  std::lock_guard<std::mutex> lock(mutex_);
  return FlushLocked();
}

absl::Status SegmentStore::FlushLocked() {
  while (!unflushed_.empty()) {
    // One that is gone was dropped, or replaced by another.
    if (absl::Status s = FlushPath(unflushed_.back()); !s.ok() && !absl::IsNotFound(s)) return s;
    unflushed_.pop_back();
  }
  if (!folder_changed_) return absl::OkStatus();
  if (absl::Status s = FlushPath(folder()); !s.ok()) return s;
  folder_changed_ = false;
  return absl::OkStatus();
}

void SegmentStore::Drop(const DeltaSegment& segment) noexcept { unlink(PathOf(segment).c_str()); }

absl::Status SegmentStore::Next(const TimelinePosition& position, uint64_t most,
                                std::unique_ptr<const DeltaSegment>* segment) const {
  absl::Status status = copies_.Next(position, most, segment);
  // Nothing has been kept yet.
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

void SegmentStore::SetHeld(const void* follower, std::optional<int64_t> epoch) {
  std::lock_guard<std::mutex> lock(held_mutex_);
  if (epoch.has_value()) {
    held_[follower] = static_cast<uint64_t>(*epoch);
  } else {
    held_.erase(follower);
  }
}

bool SegmentStore::IsHeldInside(const NamedEpochs& epochs) const {
  std::lock_guard<std::mutex> lock(held_mutex_);
  return std::any_of(held_.begin(), held_.end(),
                     [&](const auto& held) { return epochs.first <= held.second && held.second < epochs.last; });
}

absl::Status SegmentStore::ReplaceByCompacted(const DeltaTimeline& timeline) {
  std::lock_guard<std::mutex> lock(mutex_);
  std::vector<NamedEpochs> kept, published;
  if (!ListSegments(folder(), &kept).ok() || kept.size() < 2) return absl::OkStatus();
  // A fault of the timeline is found when the next segment is read.
  if (!ListSegments(timeline.folder(), &published).ok()) return absl::OkStatus();
  for (const NamedEpochs& epochs : published) {
    if (!epochs.compacted() || IsHeldInside(epochs) || std::find(kept.begin(), kept.end(), epochs) != kept.end())
      continue;
    const auto is_covered = [&](const NamedEpochs& name) { return epochs.Covers(name); };
    const auto ends = std::find_if(kept.begin(), kept.end(), [&](const NamedEpochs& name) {
      return name.last == epochs.last && is_covered(name);
    });
    if (ends == kept.end() || std::count_if(kept.begin(), kept.end(), is_covered) < 2) continue;
    std::unique_ptr<const DeltaSegment> compacted;
    absl::Status status = DeltaSegment::Open(absl::StrCat(timeline.folder(), "/", epochs.FileName()), &compacted);
    if (absl::IsNotFound(status)) continue;
    if (!status.ok()) return status;
    DeltaHeader last;
    if (!ReadHeader(absl::StrCat(folder(), "/", ends->FileName()), &last).ok()) continue;
    // Another lineage or history is refused when a segment of it would have to be applied.
    const DeltaHeader& header = compacted->header();
    if (header.lineage != lineage_ || header.chain != last.chain || header.last_epoch != epochs.last) continue;
    bool added = false;
    if (absl::Status s = KeepLocked(*compacted, &added); !s.ok()) return s;
    if (absl::Status s = FlushLocked(); !s.ok()) return s;
  }
  return RemoveCovered();
}

absl::Status SegmentStore::RemoveCovered() {
  std::vector<NamedEpochs> names;
  if (absl::Status s = ListSegments(folder(), &names); !s.ok()) return s;
  std::vector<NamedEpochs> compacted;  // few among many
  std::copy_if(names.begin(), names.end(), std::back_inserter(compacted),
               [this](const NamedEpochs& name) { return name.compacted() && !IsHeldInside(name); });
  for (const NamedEpochs& name : names) {
    const bool covered = std::any_of(compacted.begin(), compacted.end(),
                                     [&](const NamedEpochs& other) { return other.Covers(name) && !(other == name); });
    if (covered) unlink(absl::StrCat(folder(), "/", name.FileName()).c_str());
  }
  return absl::OkStatus();
}

}  // namespace processor
