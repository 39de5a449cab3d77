// SPDX-License-Identifier: Apache-2.0
// Reading from a row log.
#include <algorithm>
#include <cstring>

#include "src/ssd/guarded_copy.h"
#include "src/ssd/row_log.h"

namespace elastic_training {
namespace {

// Fewer rows are read one by one.
constexpr size_t kLeastMapped = 8;
// What a pass over all rows reads at a time.
constexpr size_t kScanBytes = 512 << 10;

}  // namespace

bool RowLog::CopyRecord(const LogFile& file, uint32_t slot, char* record) const {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (const LogBuffer* const buffer : {&new_.buffer, &moved_head_.buffer}) {
    if (buffer->file.get() != &file || slot < buffer->first || slot - buffer->first >= buffer->count) continue;
    std::memcpy(record, buffer->bytes.get() + (slot - buffer->first) * record_bytes_, record_bytes_);
    return true;
  }
  return writer_.Copy(file, slot, record);
}

bool RowLog::IsIntact(const LogFile& file, uint32_t slot, const char* record) const {
  uint32_t checksum;
  std::memcpy(&checksum, record, sizeof(checksum));
  return checksum == (SumOf(record, record_bytes_) ^ SumOfPlace(file.identity().serial, slot));
}

void RowLog::Check(const LogFile& file, uint32_t slot, const char* record) const {
  if (IsIntact(file, slot, record)) return;
  throw SsdError(SsdError::Kind::kDamaged, file.path() + ": record " + std::to_string(slot) +
                                               " is damaged; restore a checkpoint that does not need this file");
}

void RowLog::Read(const LogPlace* places, const uint64_t* keys, size_t count, float* values, size_t stride,
                  uint8_t* found, RecordHeader* headers) const {
  const FilesPointer files = this->files();
  thread_local std::vector<char> record;
  thread_local std::vector<uint32_t> mapped, missing;
  record.resize(record_bytes_);
  mapped.clear();
  missing.clear();
  GuardedCopy* const guarded = count < kLeastMapped ? nullptr : GuardedCopy::OfThread();
  const auto take = [&](size_t i, const char* from) {
    RecordHeader header;
    std::memcpy(&header, from, sizeof(header));
    found[i] = keys == nullptr || header.key() == keys[i];
    if (headers != nullptr) headers[i] = header;
    if (found[i]) std::memcpy(values + i * stride, from + sizeof(header), settings_.values * sizeof(float));
  };
  const auto take_cached = [&](size_t i) {
    const LogFile& file = *files->at[FileOf(places[i])];
    if (!file.ReadCached(SlotOf(places[i]), record.data(), 1)) return missing.push_back(static_cast<uint32_t>(i));
    Check(file, SlotOf(places[i]), record.data());
    take(i, record.data());
  };
  for (size_t i = 0; i < count; ++i) {
    const LogFile* const file = files->at[FileOf(places[i])].get();
    const uint32_t slot = SlotOf(places[i]);
    found[i] = 0;
    if (file == nullptr || slot >= file->taken) continue;
    if (slot >= file->written.load(std::memory_order_acquire) && CopyRecord(*file, slot, record.data())) {
      take(i, record.data());
    } else if (guarded != nullptr && file->mapped(slot) != nullptr && file->WasCached(slot)) {
      // Memory that is not there is not asked for, so this waits for nothing.
      for (size_t at = 0; at < record_bytes_; at += 64) __builtin_prefetch(file->mapped(slot) + at);
      mapped.push_back(static_cast<uint32_t>(i));
    } else {
      take_cached(i);
    }
  }
  read_.fetch_add(count, std::memory_order_relaxed);
  size_t done = 0;
  const size_t most = std::min(GuardedCopy::kMostParts, GuardedCopy::kMostBytes / record_bytes_);
  while (done < mapped.size() && most != 0) {
    const size_t size = std::min(most, mapped.size() - done);
    iovec parts[GuardedCopy::kMostParts];
    for (size_t p = 0; p < size; ++p) {
      const LogPlace place = places[mapped[done + p]];
      parts[p] = {const_cast<char*>(files->at[FileOf(place)]->mapped(SlotOf(place))), record_bytes_};
    }
    const long faults = MajorFaults();
    const char* const copies = guarded->Copy(parts, size, size * record_bytes_);
    if (copies == nullptr) break;
    for (size_t p = 0; p < size; ++p) {
      const uint32_t i = mapped[done + p];
      Check(*files->at[FileOf(places[i])], SlotOf(places[i]), copies + p * record_bytes_);
      take(i, copies + p * record_bytes_);
    }
    done += size;
    if (MajorFaults() == faults) continue;
    // The page cache has lost rows, which were read one after the other: those that follow are asked for together.
    for (const uint32_t i : mapped) files->at[FileOf(places[i])]->ForgetCached();
    break;
  }
  for (; done < mapped.size(); ++done) take_cached(mapped[done]);
  if (missing.empty()) return;
  // The device gets all requests at once, in the order of places, then each is waited for.
  read_device_.fetch_add(missing.size(), std::memory_order_relaxed);
  std::sort(missing.begin(), missing.end(), [&](uint32_t a, uint32_t b) { return places[a] < places[b]; });
  for (const uint32_t i : missing) files->at[FileOf(places[i])]->Fetch(SlotOf(places[i]), 1);
  for (const uint32_t i : missing) {
    const LogFile& file = *files->at[FileOf(places[i])];
    if (!file.Read(SlotOf(places[i]), record.data(), 1)) std::fill(record.begin(), record.end(), 0);
    Check(file, SlotOf(places[i]), record.data());
    take(i, record.data());
  }
}

bool RowLog::ReadNext(LogScan* scan) const {
  scan->places.clear();
  scan->headers.clear();
  scan->records.clear();
  for (; scan->id < kMostLogFiles; ++scan->id, scan->slot = 0) {
    if (scan->slot == 0) scan->file = files()->at[scan->id];
    const uint32_t written = scan->file == nullptr ? 0 : scan->file->written.load(std::memory_order_acquire);
    if (scan->slot < written) break;
    scan->file = nullptr;
  }
  if (scan->file == nullptr) return false;
  const LogFile& file = *scan->file;
  const uint32_t first = scan->slot, left = file.written - first;
  const auto count = static_cast<uint32_t>(std::min<size_t>(std::max<size_t>(kScanBytes / record_bytes_, 1), left));
  scan->slot += count;
  if (!file.HasRows(first, count)) return true;
  scan->bytes.resize(count * record_bytes_);
  if (scan->slot < file.written) file.Fetch(scan->slot, std::min(count, file.written - scan->slot));
  // A shorter file has no rows there, or rows that are found missing when they are read.
  if (!file.Read(first, scan->bytes.data(), count)) return true;
  for (uint32_t i = 0; i < count; ++i) {
    const char* const record = scan->bytes.data() + i * record_bytes_;
    if (!file.IsRow(first + i) || !IsIntact(file, first + i, record)) continue;
    scan->places.push_back(scan->id << kLogSlotBits | (first + i));
    scan->headers.emplace_back();
    std::memcpy(&scan->headers.back(), record, sizeof(RecordHeader));
    scan->records.push_back(record);
  }
  read_.fetch_add(scan->places.size(), std::memory_order_relaxed);
  return true;
}

void RowLog::Fetch(const LogPlace* places, size_t count) const {
  const FilesPointer files = this->files();
  for (size_t i = 0; i < count; ++i) {
    const LogFile* const file = files->at[FileOf(places[i])].get();
    if (file != nullptr && SlotOf(places[i]) < file->written) file->Fetch(SlotOf(places[i]), 1);
  }
}

}  // namespace elastic_training
