// SPDX-License-Identifier: Apache-2.0
// Appending to a row log.
#include "src/ssd/row_log.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace elastic_training {
namespace {

constexpr size_t kBufferBytes = 512 << 10;
constexpr int64_t kFilesOfLive = 64;

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
  for (Head* const head : {&new_, &moved_head_}) HandOver(head);
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

void RowLog::StartFile(Head* head) {
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
  if (const uint64_t used = Bytes(); used + (head == &moved_head_ ? 0 : needed) > settings_.limit_bytes) {
    if (file != nullptr) file->Remove();
    throw SsdError(SsdError::Kind::kFull, folder_.path() + ": " + std::to_string(used) + " bytes of rows, of at most " +
                                              std::to_string(settings_.limit_bytes) +
                                              "; raise ssd_limit, or evict rows");
  }
  if (file == nullptr) file.reset(LogFile::Create(folder_.path(), identity));
  next_serial_ = identity.serial + 1;
  next_id_ = (id + 1) % kMostLogFiles;
  SetFile(id, std::move(file));
  head->file = files_->at[id].get();
  const uint32_t before = std::exchange(head->id, id);
  if (before != kMostLogFiles && files_->at[before]->live() == 0) Retire(before);
  writer_.AskFile(NextIdentity());
}

void RowLog::HandOver(Head* head) {
  if (head->buffer.count != 0) writer_.Add(std::move(head->buffer));
  head->buffer = LogBuffer();
}

template <typename Encode>
void RowLog::AppendTo(Head* head, size_t count, LogPlace* places, size_t* done, const Encode& encode) {
  LogBuffer& buffer = head->buffer;
  while (*done < count) {
    if (head->file == nullptr || head->file->taken == head->file->slots()) {
      HandOver(head);
      StartFile(head);
    }
    LogFile& file = *head->file;
    const uint32_t slot = file.taken.load(std::memory_order_relaxed);
    if (buffer.count == buffer_slots_) HandOver(head);
    if (buffer.bytes == nullptr) {
      buffer = {files_->at[head->id], slot, 0, writer_.TakeMemory(buffer_slots_ * record_bytes_)};
    }
    const auto run =
        static_cast<uint32_t>(std::min<size_t>({count - *done, buffer_slots_ - buffer.count, file.slots() - slot}));
    for (uint32_t i = 0; i < run; ++i) {
      char* const record = buffer.bytes.get() + (buffer.count + i) * record_bytes_;
      encode(*done + i, record, SumOfPlace(file.identity().serial, slot + i));
      places[*done + i] = head->id << kLogSlotBits | (slot + i);
    }
    file.AddRows(slot, run);
    buffer.count += run;
    file.taken.store(slot + run, std::memory_order_relaxed);
    live_.fetch_add(run, std::memory_order_relaxed);
    *done += run;
  }
}

void RowLog::Append(const Row* rows, size_t count, LogPlace* places) {
  size_t done = 0;
  try {
    const std::lock_guard<std::mutex> lock(mutex_);
    CheckClaimed();
    writer_.ThrowError();
    AppendTo(&new_, count, places, &done, [&](size_t i, char* record, uint32_t sum_of_place) {
      const Row& row = rows[i];
      RecordHeader header{0, row.count << 8 | row.kind, static_cast<uint32_t>(row.key),
                          static_cast<uint32_t>(row.key >> 32), row.touch};
      std::memcpy(record, &header, sizeof(header));
      std::memcpy(record + sizeof(header), row.values, settings_.values * sizeof(float));
      header.checksum = SumOf(record, record_bytes_) ^ sum_of_place;
      std::memcpy(record, &header.checksum, sizeof(header.checksum));
    });
  } catch (...) {
    Drop(places, done);
    throw;
  }
  appended_.fetch_add(count, std::memory_order_relaxed);
}

void RowLog::MoveRows(size_t count, const Move& move) {
  places_.resize(count);
  size_t done = 0;
  try {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      writer_.ThrowError();
      const uint32_t serial = victim_->identity().serial;
      AppendTo(&moved_head_, count, places_.data(), &done, [&](size_t i, char* record, uint32_t sum_of_place) {
        std::memcpy(record, records_[i], record_bytes_);
        uint32_t checksum;
        std::memcpy(&checksum, record, sizeof(checksum));
        checksum ^= SumOfPlace(serial, SlotOf(moves_[i].from)) ^ sum_of_place;
        std::memcpy(record, &checksum, sizeof(checksum));
      });
    }
    for (size_t i = 0; i < count; ++i) moves_[i].to = places_[i];
    move(moves_.data(), count);
  } catch (...) {
    // The next step passes these records again.
    for (size_t i = 0; i < done; ++i) Drop(moves_[i].taken ? moves_[i].from : places_[i]);
    throw;
  }
  for (size_t i = 0; i < count; ++i) places_[i] = moves_[i].taken ? moves_[i].from : moves_[i].to;
  Drop(places_.data(), count);
  moved_.fetch_add(count, std::memory_order_relaxed);
}

void RowLog::Drop(const LogPlace* places, size_t count) {
  if (count == 0) return;
  live_.fetch_sub(static_cast<int64_t>(count), std::memory_order_relaxed);
  for (size_t i = 0; i < count; ++i) {
    const uint32_t id = FileOf(places[i]);
    if (!raw_[id].load(std::memory_order_relaxed)->DropRow(SlotOf(places[i]))) continue;
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!IsHead(id) && files_->at[id] != nullptr && files_->at[id]->live() == 0) Retire(id);
  }
}

}  // namespace elastic_training
