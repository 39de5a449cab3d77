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
constexpr double kMostSpace = 1.38;
// Files with a larger share of live rows are not worth it.
constexpr double kMostLive = 0.95, kLeastDead = 1 - kMostLive;
// Most records that a step frees, beside so many for each one that was appended since the last step.
constexpr double kLeastStep = 64, kMostPace = 1.25;
constexpr size_t kMostChunkBytes = 256 << 10;

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

// Records that full files, and those that are in files which are being filled or reclaimed, take beyond what they may.
double RowLog::Excess() const {
  double used = static_cast<double>(Bytes()) / static_cast<double>(record_bytes_);
  for (const Head* const head : {&new_, &moved_head_}) {
    if (head->file != nullptr) used -= head->file->slots() - head->file->taken;
  }
  if (victim_ != nullptr && files_->at[victim_id_] == victim_ && retired_.count(victim_id_) == 0) used -= victim_slot_;
  const double allowed = kMostSpace * static_cast<double>(live_);
  const double limit = static_cast<double>(settings_.limit_bytes - settings_.limit_bytes / 8);
  return used - std::min(allowed, limit / static_cast<double>(record_bytes_));
}

uint32_t RowLog::Choose() const {
  uint32_t best = kMostLogFiles;
  double least = kMostLive;
  for (uint32_t id = 0; id < kMostLogFiles; ++id) {
    const LogFile* const file = files_->at[id].get();
    if (file == nullptr || IsHead(id) || retired_.count(id) != 0 || file->written != file->taken) continue;
    if (damaged_.count(file->identity().serial) != 0) continue;
    const double share = static_cast<double>(file->live()) / file->slots();
    if (share >= least) continue;
    least = share;
    best = id;
  }
  return best;
}

bool RowLog::StartVictim() {
  const std::lock_guard<std::mutex> lock(mutex_);
  const uint32_t id = Choose();
  if (id == kMostLogFiles) return false;
  victim_ = files_->at[id];
  victim_id_ = id;
  victim_slot_ = 0;
  return true;
}

size_t RowLog::Owed() {
  const std::unique_lock<std::mutex> reclaim_lock(reclaim_mutex_, std::try_to_lock);
  if (!reclaim_lock) return 0;
  const uint64_t appended = appended_.load() - std::exchange(owed_from_, appended_.load());
  double excess;
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (waits_) return 0;
    excess = Excess();
  }
  if (excess <= 0 || (victim_ == nullptr && !StartVictim())) return 0;
  // Each record that is passed frees the share that is dead, which the last records of a file tell little about. What is
  // owed for other reasons than the last rows is spread.
  const double usual = victim_->slots() / 8.0, left = victim_->slots() - victim_slot_;
  const double dead = std::max((left - static_cast<double>(victim_->live()) + usual / 2) / (left + usual), kLeastDead);
  return static_cast<size_t>(std::min(excess, kLeastStep + kMostPace * static_cast<double>(appended)) / dead) + 1;
}

size_t RowLog::Reclaim(size_t most, const Move& move) {
  const std::unique_lock<std::mutex> reclaim_lock(reclaim_mutex_, std::try_to_lock);
  if (!reclaim_lock) return 0;
  size_t passed = 0;
  while (passed < most && (victim_ != nullptr || StartVictim())) passed += Pass(most - passed, move);
  passed_.fetch_add(passed, std::memory_order_relaxed);
  return passed;
}

size_t RowLog::Pass(size_t most, const Move& move) {
  const FilePointer file = victim_;
  const uint32_t taken = file->taken;
  const auto count = static_cast<uint32_t>(
      std::min({most, std::max<size_t>(kMostChunkBytes / record_bytes_, 1), size_t{taken - victim_slot_}}));
  if (file->HasRows(victim_slot_, count)) MoveRows(FindRows(*file, count), move);
  victim_slot_ += count;
  if (victim_slot_ < taken && file->live() > 0) return count;
  // Rows that are left have damaged records: the file stays, and reading them says so.
  if (file->live() > 0) damaged_.insert(file->identity().serial);
  reclaimed_files_.fetch_add(file->live() > 0 ? 0 : 1);
  victim_ = nullptr;
  return count;
}

// Reads records of the victim, and finds the rows among them.
size_t RowLog::FindRows(const LogFile& file, uint32_t count) {
  chunk_.resize(count * record_bytes_);
  // A shorter file has no rows there, or rows that are found missing at the end.
  if (!file.Read(victim_slot_, chunk_.data(), count)) std::fill(chunk_.begin(), chunk_.end(), 0);
  const uint32_t next = victim_slot_ + count, next_count = std::min(count, file.taken - next);
  if (next_count != 0 && !file.WasCached(next)) file.Fetch(next, next_count);
  records_.clear();
  moves_.clear();
  for (uint32_t i = 0; i < count; ++i) {
    const uint32_t slot = victim_slot_ + i;
    const char* const record = chunk_.data() + i * record_bytes_;
    if (!file.IsRow(slot) || !IsIntact(file, slot, record)) continue;
    RecordHeader header;
    std::memcpy(&header, record, sizeof(header));
    records_.push_back(record);
    moves_.push_back({header.key(), victim_id_ << kLogSlotBits | slot, 0, false});
  }
  return moves_.size();
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
    for (Head* const head : {&new_, &moved_head_}) HandOver(head);
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
  if (file->IsRow(SlotOf(place))) return;
  file->AddRows(SlotOf(place), 1);
  ++live_;
}

void RowLog::EndResume() {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (uint32_t id = 0; id < kMostLogFiles; ++id) {
    if (files_->at[id] != nullptr && !IsHead(id) && files_->at[id]->live() == 0) Retire(id);
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
      {"passed", passed_.load()},
      {"moved", moved_.load()},
      {"reclaimed_files", reclaimed_files_.load()}};
}

}  // namespace elastic_training
