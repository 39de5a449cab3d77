// SPDX-License-Identifier: Apache-2.0
#include "src/ssd/log_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <new>
#include <utility>
#include <vector>

#include "src/base/hash.h"

namespace elastic_training {
namespace {

constexpr char kMagic[8] = {'E', 'T', 'R', 'O', 'W', 'S', '0', '2'};
// The last two characters are the version.
constexpr size_t kMagicName = 6;

struct FileHeader {
  char magic[8];
  char run[32];
  uint32_t serial, record_bytes, slots, checksum;

  uint32_t Sum() const {
    uint64_t sum = Mix(static_cast<uint64_t>(serial) << 32 | record_bytes) ^ slots;
    for (const char c : run) sum = Mix(sum + static_cast<uint8_t>(c) + kGoldenStep);
    return static_cast<uint32_t>(sum);
  }
};
static_assert(sizeof(FileHeader) <= LogFile::kHeaderBytes, "the header has room");

// Writes or reads all bytes; returns those that were, fewer at the end of a file.
template <typename Call>
size_t Transfer(const std::string& path, const char* what, size_t bytes, const Call& call) {
  size_t done = 0;
  while (done < bytes) {
    const ssize_t moved = call(done);
    if (moved < 0 && errno == EINTR) continue;
    if (moved < 0) throw SsdError::OfCall(path, what, errno);
    if (moved == 0) break;
    done += static_cast<size_t>(moved);
  }
  return done;
}

}  // namespace

SsdError SsdError::OfCall(const std::string& path, const char* call, int number) {
  const bool full = number == ENOSPC || number == EDQUOT || number == EFBIG;
  const std::string advice = full ? "; free space there or lower ssd_limit, rows stay in memory until it works"
                                  : "; check the device, training may go on from its last checkpoint";
  return SsdError(full ? Kind::kFull : Kind::kDevice, path + ": " + call + ": " + std::strerror(number) + advice);
}

std::string LogFile::NameOf(uint32_t serial) {
  char name[16];
  std::snprintf(name, sizeof(name), "%08x", serial);
  return std::string(name) + kSuffix;
}

LogFile* LogFile::Create(const std::string& folder, const Identity& identity) {
  const std::string path = folder + "/" + NameOf(identity.serial);
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0644);
  if (descriptor < 0) throw SsdError::OfCall(path, "open", errno);
  std::unique_ptr<LogFile> file(new LogFile(path, descriptor, identity));
  try {
    // A full device is then found before rows are on their way.
    const int status = posix_fallocate(descriptor, 0, static_cast<off_t>(file->bytes()));
    if (status != 0 && status != EINVAL && status != EOPNOTSUPP) throw SsdError::OfCall(path, "fallocate", status);
    file->WriteHeader();
  } catch (...) {
    file->Remove();
    throw;
  }
  return file.release();
}

void LogFile::WriteHeader() {
  std::vector<char> block(kHeaderBytes);
  FileHeader header{};
  std::memcpy(header.magic, kMagic, sizeof(kMagic));
  std::memcpy(header.run, identity_.run.data(), std::min(identity_.run.size(), sizeof(header.run)));
  header.serial = identity_.serial;
  header.record_bytes = identity_.record_bytes;
  header.slots = identity_.slots;
  header.checksum = header.Sum();
  std::memcpy(block.data(), &header, sizeof(header));
  Transfer(path_, "write", kHeaderBytes, [&](size_t done) {
    return pwrite(descriptor_, block.data() + done, kHeaderBytes - done, static_cast<off_t>(done));
  });
}

LogFile* LogFile::Recycle(const std::string& folder, const LogFile& old, const Identity& identity) {
  const std::string path = folder + "/" + NameOf(identity.serial);
  if (rename(old.path().c_str(), path.c_str()) != 0) throw SsdError::OfCall(path, "rename", errno);
  const int descriptor = dup(old.descriptor_);
  if (descriptor < 0) throw SsdError::OfCall(path, "dup", errno);
  std::unique_ptr<LogFile> file(new LogFile(path, descriptor, identity));
  file->WriteHeader();
  return file.release();
}

LogFile* LogFile::Open(const std::string& folder, const std::string& run, uint32_t serial, uint32_t record_bytes) {
  const std::string path = folder + "/" + NameOf(serial);
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (descriptor < 0) throw SsdError::OfCall(path, "open", errno);
  FileHeader header{};
  std::unique_ptr<LogFile> closes(new LogFile(path, descriptor, {}));
  const size_t read = Transfer(path, "read", sizeof(header), [&](size_t done) {
    return pread(descriptor, reinterpret_cast<char*>(&header) + done, sizeof(header) - done, static_cast<off_t>(done));
  });
  if (read == sizeof(header) && std::memcmp(header.magic, kMagic, kMagicName) == 0 &&
      std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0) {
    throw SsdError(SsdError::Kind::kRefused,
                   path + ": rows of version " + std::string(header.magic + kMagicName, 2) + ", expected version " +
                       std::string(kMagic + kMagicName, 2) +
                       "; restore a checkpoint that has a copy of the rows, or remove the folder");
  }
  if (read != sizeof(header) || std::memcmp(header.magic, kMagic, sizeof(kMagic)) != 0 ||
      header.checksum != header.Sum() || header.serial != serial || header.slots > (1u << 20)) {
    throw SsdError(SsdError::Kind::kDamaged, path + ": damaged, expected the header of a file of rows");
  }
  const std::string found(header.run, strnlen(header.run, sizeof(header.run)));
  if (found != run) {
    throw SsdError(SsdError::Kind::kRefused, path + ": of run " + found + ", expected run " + run +
                                                 "; give each run a folder of its own, or remove the file");
  }
  if (record_bytes != 0 && header.record_bytes != record_bytes) {
    throw SsdError(SsdError::Kind::kRefused, path + ": records of " + std::to_string(header.record_bytes) +
                                                 " bytes, expected " + std::to_string(record_bytes) +
                                                 " as the table has");
  }
  const int owned = dup(descriptor);
  if (owned < 0) throw SsdError::OfCall(path, "dup", errno);
  auto* const file = new (std::nothrow) LogFile(path, owned, {run, serial, header.record_bytes, header.slots});
  if (file == nullptr) {
    close(owned);
    throw std::bad_alloc();
  }
  return file;
}

void LogFile::RemoveUnneeded(const std::string& folder, const std::string& run, uint32_t serial) {
  try {
    std::unique_ptr<LogFile>(Open(folder, run, serial, 0))->Remove();
  } catch (const SsdError& error) {
    // A process that is killed while it makes a file leaves one without a header.
    if (error.kind() != SsdError::Kind::kDamaged) throw;
    unlink((folder + "/" + NameOf(serial)).c_str());
  }
}

LogFile::~LogFile() {
  if (mapped_ != nullptr) munmap(const_cast<char*>(mapped_), bytes());
  close(descriptor_);
}

void LogFile::Map() {
  if (slots() == 0) return;
  void* const mapped = mmap(nullptr, bytes(), PROT_READ, MAP_SHARED, descriptor_, 0);
  if (mapped == MAP_FAILED) return;
  madvise(mapped, bytes(), MADV_RANDOM);
  madvise(mapped, bytes(), MADV_DONTDUMP);
  mapped_ = static_cast<const char*>(mapped);
}

bool LogFile::WasCached(uint32_t slot) const {
  const auto has = [this](int64_t at) {
    const size_t page = static_cast<size_t>(at) / kPageBytes;
    return (cached_[page / 64].load(std::memory_order_relaxed) >> page % 64 & 1) != 0;
  };
  for (int64_t at = offset(slot); at < offset(slot + 1); at += kPageBytes) {
    if (!has(at)) return false;
  }
  return has(offset(slot + 1) - 1);
}

void LogFile::SetCached(uint32_t slot, uint32_t count) const {
  const size_t end = static_cast<size_t>(offset(slot + count) - 1) / kPageBytes;
  for (size_t page = static_cast<size_t>(offset(slot)) / kPageBytes; page <= end; ++page) {
    const uint64_t bit = uint64_t{1} << page % 64;
    std::atomic<uint64_t>& bits = cached_[page / 64];
    if ((bits.load(std::memory_order_relaxed) & bit) == 0) bits.fetch_or(bit, std::memory_order_relaxed);
  }
}

void LogFile::ForgetCached() const {
  for (std::atomic<uint64_t>& bits : cached_) bits.store(0, std::memory_order_relaxed);
}

void LogFile::Write(uint32_t slot, const char* records, uint32_t count) {
  const size_t bytes = static_cast<size_t>(count) * identity_.record_bytes;
  dirty_.store(true);
  Transfer(path_, "write", bytes, [&](size_t done) {
    return pwrite(descriptor_, records + done, bytes - done, offset(slot) + static_cast<off_t>(done));
  });
  SetCached(slot, count);
  // The device may begin, so that Sync finds little to do.
  sync_file_range(descriptor_, offset(slot), static_cast<off_t>(bytes), SYNC_FILE_RANGE_WRITE);
}

bool LogFile::Read(uint32_t slot, char* records, uint32_t count) const {
  const size_t bytes = static_cast<size_t>(count) * identity_.record_bytes;
  const size_t read = Transfer(path_, "read", bytes, [&](size_t done) {
    return pread(descriptor_, records + done, bytes - done, offset(slot) + static_cast<off_t>(done));
  });
  if (read == bytes) SetCached(slot, count);
  return read == bytes;
}

bool LogFile::ReadCached(uint32_t slot, char* records, uint32_t count) const {
  const iovec part{records, static_cast<size_t>(count) * identity_.record_bytes};
  if (preadv2(descriptor_, &part, 1, offset(slot), RWF_NOWAIT) != static_cast<ssize_t>(part.iov_len)) return false;
  SetCached(slot, count);
  return true;
}

void LogFile::Fetch(uint32_t slot, uint32_t count) const {
  posix_fadvise(descriptor_, offset(slot), static_cast<off_t>(count) * identity_.record_bytes, POSIX_FADV_WILLNEED);
}

void LogFile::Sync() {
  // After a failure the system takes lost pages for written ones, so a second call would succeed without them.
  if (failed_.load() != 0) throw SsdError::OfCall(path_, "fdatasync", failed_.load());
  if (!dirty_.exchange(false)) return;
  if (fdatasync(descriptor_) == 0) return;
  failed_.store(errno);
  throw SsdError::OfCall(path_, "fdatasync", failed_.load());
}

bool LogFile::HasRows(uint32_t slot, uint32_t count) const {
  for (const uint32_t end = slot + count; slot < end; slot = (slot / 64 + 1) * 64) {
    const uint32_t bits = std::min(64 - slot % 64, end - slot);
    if ((rows_[slot / 64].load(std::memory_order_relaxed) >> slot % 64 & ~uint64_t{0} >> (64 - bits)) != 0) return true;
  }
  return false;
}

void LogFile::AddRows(uint32_t slot, uint32_t count) {
  live_.fetch_add(count, std::memory_order_relaxed);
  for (const uint32_t end = slot + count; slot < end; slot = (slot / 64 + 1) * 64) {
    const uint32_t bits = std::min(64 - slot % 64, end - slot);
    rows_[slot / 64].fetch_or(~uint64_t{0} >> (64 - bits) << slot % 64, std::memory_order_relaxed);
  }
}

bool LogFile::DropRow(uint32_t slot) {
  rows_[slot / 64].fetch_and(~(uint64_t{1} << slot % 64), std::memory_order_relaxed);
  return live_.fetch_sub(1) == 1;
}

void LogFile::Remove() { unlink(path_.c_str()); }

}  // namespace elastic_training
