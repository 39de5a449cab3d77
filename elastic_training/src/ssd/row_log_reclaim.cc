// SPDX-License-Identifier: Apache-2.0
// Space of a row log: which files are reclaimed, kept for checkpoints and removed.
#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>
#include <utility>

#include "src/ssd/row_log.h"

namespace elastic_training {
namespace {

// Files are reclaimed beyond this share of the live rows; the files that are being filled and reclaimed come on top.
constexpr double kMostSpace = 1.4;
// Files with a larger share of live rows are not worth it.
constexpr double kMostLive = 0.95;
constexpr size_t kLeastStep = 64;
constexpr size_t kMostChunkBytes = 1 << 20;

}  // namespace

std::set<uint32_t> RowLog::Pinned() const {
  std::set<uint32_t> serials;
  for (const auto& [token, promise] : pins_) {
    for (const PromisedFile& file : promise) serials.insert(file.serial);
  }
  return serials;
}

void RowLog::Retire(uint32_t id) {
  const FilePointer file = files_->at[id];
  if (Pinned().count(file->identity().serial) != 0) {
    retired_.insert(id);
    return;
  }
  retired_.erase(id);
  SetFile(id, nullptr);
  writer_.Remove(file);
}

bool RowLog::Crowded() const {
  const uint64_t bytes = Bytes();
  return static_cast<double>(bytes) > kMostSpace * static_cast<double>(live_) * static_cast<double>(record_bytes_) ||
         (bytes > settings_.limit_bytes - settings_.limit_bytes / 8);
}

uint32_t RowLog::Choose() const {
  if (!Crowded()) return kMostLogFiles;
  uint32_t best = kMostLogFiles;
  double least = kMostLive;
  for (uint32_t id = 0; id < kMostLogFiles; ++id) {
    const LogFile* const file = files_->at[id].get();
    if (file == nullptr || id == active_ || retired_.count(id) != 0 || file->written != file->taken) continue;
    if (damaged_.count(file->identity().serial) != 0) continue;
    const double share = static_cast<double>(file->live) / file->slots();
    if (share >= least) continue;
    least = share;
    best = id;
  }
  return best;
}

size_t RowLog::Owed() {
  const std::unique_lock<std::mutex> reclaim_lock(reclaim_mutex_, std::try_to_lock);
  if (!reclaim_lock) return 0;
  const uint64_t appended = appended_.load() - std::exchange(owed_from_, appended_.load());
  if (victim_ == nullptr) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (waits_) return 0;
    const uint32_t id = Choose();
    if (id == kMostLogFiles) return 0;
    victim_ = files_->at[id];
    victim_id_ = id;
    victim_slot_ = 0;
  }
  // Each record that is passed frees the share that is dead.
  const double dead = 1 - static_cast<double>(victim_->live) / victim_->slots();
  return kLeastStep + static_cast<size_t>(static_cast<double>(appended) / std::max(dead, 0.05));
}

size_t RowLog::Reclaim(size_t most, const Move& move) {
  const std::unique_lock<std::mutex> reclaim_lock(reclaim_mutex_, std::try_to_lock);
  if (!reclaim_lock || victim_ == nullptr) return 0;
  const FilePointer file = victim_;
  const uint32_t taken = file->taken;
  size_t passed = 0;
  while (passed < most && victim_slot_ < taken && file->live > 0) {
    const uint32_t chunk = static_cast<uint32_t>(
        std::min({most - passed, std::max<size_t>(kMostChunkBytes / record_bytes_, 1), size_t{taken - victim_slot_}}));
    chunk_.resize(chunk * record_bytes_);
    // A shorter file has no rows there, or rows that are found missing at the end.
    if (!file->Read(victim_slot_, chunk_.data(), chunk)) std::fill(chunk_.begin(), chunk_.end(), 0);
    file->Fetch(victim_slot_ + chunk, std::min(chunk, taken - victim_slot_ - chunk));
    for (uint32_t i = 0; i < chunk; ++i) {
      const char* const record = chunk_.data() + i * record_bytes_;
      RecordHeader header;
      std::memcpy(&header, record, sizeof(header));
      if (header.serial != file->identity().serial ||
          header.checksum != ChecksumOf(record, record_bytes_, victim_slot_)) {
        ++victim_slot_;
        continue;
      }
      const auto* const values = reinterpret_cast<const float*>(record + sizeof(header));
      // If it throws, the next step passes this record again.
      move({header.key, header.touch, header.count(), header.kind(), values},
           victim_id_ << kLogSlotBits | victim_slot_);
      ++victim_slot_;
    }
    passed += chunk;
  }
  moved_.fetch_add(passed, std::memory_order_relaxed);
  if (victim_slot_ < taken && file->live > 0) return passed;
  // Rows that are left have damaged records: the file stays, and reading them says so.
  if (file->live > 0) damaged_.insert(file->identity().serial);
  reclaimed_files_.fetch_add(file->live > 0 ? 0 : 1);
  victim_ = nullptr;
  return passed;
}

void RowLog::Pin(uint64_t token) {
  const std::lock_guard<std::mutex> lock(mutex_);
  CheckClaimed();
  LogPromise pin;
  for (uint32_t id = 0; id < kMostLogFiles; ++id) {
    const LogFile* const file = files_->at[id].get();
    if (file != nullptr && retired_.count(id) == 0) pin.push_back({id, file->identity().serial, file->taken});
  }
  pins_[token] = std::move(pin);
}

void RowLog::Promise(uint64_t token) {
  LogPromise pin;
  FilesPointer files;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    pin = pins_.at(token);
    files = files_;
    if (buffer_.count != 0) HandOver();
  }
  writer_.Flush();
  for (const PromisedFile& file : pin) files->at[file.id]->Sync();
  const std::lock_guard<std::mutex> lock(mutex_);
  folder_.Write(token, pin);
}

void RowLog::Forget(uint64_t token) {
  const std::lock_guard<std::mutex> lock(mutex_);
  pins_.erase(token);
  folder_.Remove(token);
  if (waits_ && folder_.promises().empty()) LoadPromises();
  const std::set<uint32_t> retired = retired_;
  for (const uint32_t id : retired) Retire(id);
}

void RowLog::LoadPromises() {
  // Files of all promises are opened and kept: other checkpoints may still be restored.
  std::map<uint32_t, PromisedFile> needed;
  for (const auto& [token, promise] : folder_.promises()) {
    for (const PromisedFile& file : promise) needed[file.serial] = file;
  }
  for (const uint32_t serial : folder_.Serials()) {
    if (needed.count(serial) == 0) {
      LogFile::RemoveUnneeded(folder_.path(), folder_.run(), serial);
      continue;
    }
    FilePointer file(LogFile::Open(folder_.path(), folder_.run(), serial, record_bytes_));
    file->taken = file->written = file->slots();
    const uint32_t id = needed[serial].id;
    SetFile(id, std::move(file));
    retired_.insert(id);
    next_id_ = std::max(next_id_, id + 1) % kMostLogFiles;
  }
  pins_ = folder_.promises();
  waits_ = false;
}

void RowLog::Resume(const std::string& run, uint64_t token) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (run != folder_.run()) {
    throw SsdError(SsdError::Kind::kRefused, folder_.path() + ": has rows of run " + folder_.run() + ", expected run " +
                                                 run + " of the checkpoint");
  }
  const auto found = folder_.promises().find(token);
  if (found == folder_.promises().end()) {
    throw SsdError(SsdError::Kind::kRefused, folder_.path() + ": does not have the rows of this checkpoint");
  }
  if (waits_) LoadPromises();
  for (const PromisedFile& promised : found->second) {
    const LogFile* const file = files_->at[promised.id].get();
    if (file == nullptr || file->identity().serial != promised.serial) {
      throw SsdError(SsdError::Kind::kDamaged, folder_.path() + "/" + LogFile::NameOf(promised.serial) +
                                                   ": missing, expected rows of the checkpoint");
    }
    retired_.erase(promised.id);
  }
}

void RowLog::Adopt(LogPlace place) {
  const std::lock_guard<std::mutex> lock(mutex_);
  LogFile* const file = FileOf(place) < kMostLogFiles ? files_->at[FileOf(place)].get() : nullptr;
  if (file == nullptr || SlotOf(place) >= file->taken || retired_.count(FileOf(place)) != 0) {
    throw SsdError(SsdError::Kind::kDamaged,
                   folder_.path() + ": no row at " + std::to_string(place) + ", which the checkpoint names");
  }
  ++file->live;
  ++live_;
}

void RowLog::EndResume() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (uint32_t id = 0; id < kMostLogFiles; ++id) {
    if (files_->at[id] != nullptr && id != active_ && files_->at[id]->live == 0) Retire(id);
  }
}

nlohmann::json RowLog::Stats() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  uint64_t pinned = 0;
  for (const uint32_t id : retired_) pinned += files_->at[id]->bytes();
  return {
      {"rows", live_.load()},
      {"bytes", Bytes()},
      {"pinned_bytes", pinned},
      {"files", std::count_if(files_->at.begin(), files_->at.end(), [](const auto& file) { return file != nullptr; })},
      {"appended", appended_.load()},
      {"read", read_.load()},
      {"read_device", read_device_.load()},
      {"passed", moved_.load()},
      {"reclaimed_files", reclaimed_files_.load()}};
}

}  // namespace elastic_training
