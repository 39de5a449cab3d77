// SPDX-License-Identifier: Apache-2.0
// Appending to a row log and reading from it.
#include "src/ssd/row_log.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace elastic_training {
namespace {

constexpr size_t kBufferBytes = 256 << 10;
constexpr int64_t kFilesOfLive = 16;

}  // namespace

RowLog::RowLog(const LogSettings& settings)
    : settings_(settings),
      record_bytes_(RecordBytes(settings.values)),
      folder_(settings.folder),
      writer_(settings.folder),
      files_(std::make_shared<Files>()) {
  buffer_slots_ = static_cast<uint32_t>(std::max<size_t>(kBufferBytes / record_bytes_, 1));
  waits_ = !folder_.promises().empty();
  for (const uint32_t serial : folder_.Serials()) {
    next_serial_ = std::max(next_serial_, serial + 1);
    if (!waits_) LogFile::RemoveUnneeded(folder_.path(), folder_.run(), serial);
  }
}

RowLog::~RowLog() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (buffer_.count != 0) HandOver();
}

RowLog::FilesPointer RowLog::files() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return files_;
}

void RowLog::SetFile(uint32_t id, FilePointer file) {
  auto files = std::make_shared<Files>(*files_);
  raw_[id].store(file.get());
  files->at[id] = std::move(file);
  files_ = std::move(files);
}

void RowLog::CheckClaimed() const {
  if (!waits_) return;
  throw SsdError(SsdError::Kind::kRefused,
                 folder_.path() + ": has rows of an earlier run that checkpoints promise (" + folder_.run() +
                     "); restore a checkpoint of it, give another folder, or remove this one");
}

LogFile::Identity RowLog::NextIdentity() const {
  const size_t wanted = static_cast<size_t>(std::max<int64_t>(live_, 0) / kFilesOfLive) * record_bytes_;
  // Powers of two, so that a removed file can become the next one.
  size_t bytes = settings_.least_file_bytes;
  while (2 * bytes <= std::min(wanted, settings_.most_file_bytes)) bytes *= 2;
  const size_t slots = std::clamp<size_t>(bytes / record_bytes_, 1, kMostLogSlots);
  return {folder_.run(), next_serial_, static_cast<uint32_t>(record_bytes_), static_cast<uint32_t>(slots)};
}

uint64_t RowLog::Bytes() const {
  uint64_t sum = 0;
  for (uint32_t id = 0; id < kMostLogFiles; ++id) {
    if (files_->at[id] != nullptr && retired_.count(id) == 0) sum += files_->at[id]->bytes();
  }
  return sum;
}

void RowLog::StartFile(bool moves) {
  uint32_t id = next_id_;
  while (files_->at[id] != nullptr) {
    id = (id + 1) % kMostLogFiles;
    if (id != next_id_) continue;
    throw SsdError(SsdError::Kind::kFull, folder_.path() + ": has " + std::to_string(kMostLogFiles) +
                                              " files, the most of a table; evict rows or keep fewer checkpoints");
  }
  FilePointer file = writer_.TakeFile();
  const LogFile::Identity identity = file != nullptr ? file->identity() : NextIdentity();
  const uint64_t needed = LogFile::kHeaderBytes + static_cast<uint64_t>(identity.slots) * record_bytes_;
  // One more file is for reclaiming, which frees more than it takes.
  if (const uint64_t used = Bytes(); used + (moves ? 0 : needed) > settings_.limit_bytes) {
    if (file != nullptr) file->Remove();
    throw SsdError(SsdError::Kind::kFull, folder_.path() + ": " + std::to_string(used) + " bytes of rows, of at most " +
                                              std::to_string(settings_.limit_bytes) +
                                              "; raise ssd_limit, or evict rows");
  }
  if (file == nullptr) file.reset(LogFile::Create(folder_.path(), identity));
  next_serial_ = identity.serial + 1;
  next_id_ = (id + 1) % kMostLogFiles;
  SetFile(id, std::move(file));
  const uint32_t before = std::exchange(active_, id);
  if (before != kMostLogFiles && files_->at[before]->live == 0) Retire(before);
}

void RowLog::StartBuffer() {
  buffer_.file = files_->at[active_];
  buffer_.first = buffer_.file->taken.load();
  buffer_.count = 0;
  buffer_.bytes.reset(new char[buffer_slots_ * record_bytes_]);
}

void RowLog::HandOver() {
  writer_.Add(std::move(buffer_));
  buffer_ = LogBuffer();
}

LogPlace RowLog::Append(const Row& row, bool moves) {
  const std::lock_guard<std::mutex> lock(mutex_);
  CheckClaimed();
  writer_.ThrowError();
  LogFile* file = active_ == kMostLogFiles ? nullptr : files_->at[active_].get();
  if (file == nullptr || file->taken == file->slots()) {
    StartFile(moves);
    file = files_->at[active_].get();
  }
  if (buffer_.bytes == nullptr) StartBuffer();
  const uint32_t slot = file->taken.load(std::memory_order_relaxed);
  char* const record = buffer_.bytes.get() + buffer_.count * record_bytes_;
  const RecordHeader header{0, row.count << 8 | row.kind, row.key, row.touch, file->identity().serial};
  std::memcpy(record, &header, sizeof(header));
  std::memcpy(record + sizeof(header), row.values, settings_.values * sizeof(float));
  const size_t end = sizeof(header) + settings_.values * sizeof(float);
  std::memset(record + end, 0, record_bytes_ - end);
  ++buffer_.count;
  file->taken.store(slot + 1, std::memory_order_relaxed);
  file->live.fetch_add(1, std::memory_order_relaxed);
  live_.fetch_add(1, std::memory_order_relaxed);
  appended_.fetch_add(1, std::memory_order_relaxed);
  const LogPlace place = active_ << kLogSlotBits | slot;
  if (buffer_.count == buffer_slots_ || slot + 1 == file->slots()) HandOver();
  if (slot == file->slots() / 2) writer_.AskFile(NextIdentity());
  return place;
}

void RowLog::Drop(LogPlace place) {
  const uint32_t id = FileOf(place);
  live_.fetch_sub(1, std::memory_order_relaxed);
  if (raw_[id].load()->live.fetch_sub(1) != 1) return;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (id != active_ && files_->at[id] != nullptr && files_->at[id]->live == 0) Retire(id);
}

bool RowLog::CopyRecord(const LogFile& file, uint32_t slot, char* record) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (buffer_.file.get() == &file && slot >= buffer_.first && slot - buffer_.first < buffer_.count) {
    std::memcpy(record, buffer_.bytes.get() + (slot - buffer_.first) * record_bytes_, record_bytes_);
    return true;
  }
  return writer_.Copy(file, slot, record);
}

void RowLog::Check(const LogFile& file, uint32_t slot, const char* record) const {
  RecordHeader header;
  std::memcpy(&header, record, sizeof(header));
  if (header.serial == file.identity().serial && header.checksum == ChecksumOf(record, record_bytes_, slot)) return;
  throw SsdError(SsdError::Kind::kDamaged, file.path() + ": record " + std::to_string(slot) +
                                               " is damaged; restore a checkpoint that does not need this file");
}

void RowLog::Read(const LogPlace* places, const uint64_t* keys, size_t count, float* values, size_t stride,
                  uint8_t* found) const {
  const FilesPointer files = this->files();
  thread_local std::vector<char> record;
  thread_local std::vector<uint32_t> missing;
  record.resize(record_bytes_);
  missing.clear();
  const auto take = [&](size_t i) {
    RecordHeader header;
    std::memcpy(&header, record.data(), sizeof(header));
    found[i] = header.key == keys[i];
    if (found[i]) std::memcpy(values + i * stride, record.data() + sizeof(header), settings_.values * sizeof(float));
  };
  for (size_t i = 0; i < count; ++i) {
    const LogFile* const file = files->at[FileOf(places[i])].get();
    const uint32_t slot = SlotOf(places[i]);
    found[i] = 0;
    if (file == nullptr || slot >= file->taken) continue;
    if (slot >= file->written.load(std::memory_order_acquire) && CopyRecord(*file, slot, record.data())) {
      take(i);
    } else if (file->ReadCached(slot, record.data(), 1)) {
      Check(*file, slot, record.data());
      take(i);
    } else {
      missing.push_back(static_cast<uint32_t>(i));
    }
  }
  read_.fetch_add(count, std::memory_order_relaxed);
  if (missing.empty()) return;
  // The device gets all requests at once, in the order of places, then each is waited for.
  read_device_.fetch_add(missing.size(), std::memory_order_relaxed);
  std::sort(missing.begin(), missing.end(), [&](uint32_t a, uint32_t b) { return places[a] < places[b]; });
  for (const uint32_t i : missing) files->at[FileOf(places[i])]->Fetch(SlotOf(places[i]), 1);
  for (const uint32_t i : missing) {
    const LogFile& file = *files->at[FileOf(places[i])];
    if (!file.Read(SlotOf(places[i]), record.data(), 1)) std::fill(record.begin(), record.end(), 0);
    Check(file, SlotOf(places[i]), record.data());
    take(i);
  }
}

void RowLog::Fetch(const LogPlace* places, size_t count) const {
  const FilesPointer files = this->files();
  for (size_t i = 0; i < count; ++i) {
    const LogFile* const file = files->at[FileOf(places[i])].get();
    if (file != nullptr && SlotOf(places[i]) < file->written) file->Fetch(SlotOf(places[i]), 1);
  }
}

}  // namespace elastic_training
