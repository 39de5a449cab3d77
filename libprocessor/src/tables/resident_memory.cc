// SPDX-License-Identifier: Apache-2.0
#include "src/tables/resident_memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <mutex>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/free_memory.h"
#include "src/tables/table_file.h"

#ifndef MFD_NOEXEC_SEAL  // Linux 6.3
#define MFD_NOEXEC_SEAL 0x0008U
#endif
#ifndef MFD_HUGE_2MB
#define MFD_HUGE_2MB (21U << 26)
#endif
#ifndef MADV_POPULATE_READ  // Linux 5.14
#define MADV_POPULATE_READ 22
#endif
#ifndef MADV_COLLAPSE  // Linux 6.1
#define MADV_COLLAPSE 25
#endif

namespace processor {
namespace {

constexpr size_t kHuge = size_t{2} << 20;
constexpr size_t kSmallPage = 4096;
// Reserved pages are whole, so a smaller table would waste more than an eighth of them.
constexpr uint64_t kLeastReserved = 8 * kHuge;
// Pages that are taken between two calls of `on_progress`.
constexpr size_t kTakenAtOnce = 32 * kHuge;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_WRITE | F_SEAL_SEAL;
constexpr int64_t kTmpfs = 0x01021994, kHugetlbfs = 0x958458f6;  // of statfs()
// A share of the free memory that tables leave to requests.
constexpr uint64_t kLeftToOthers = 16;

size_t UpTo(uint64_t bytes, size_t page) { return (bytes + page - 1) / page * page; }

int MakeMemfd(const std::string& name, unsigned flags) {
  const int made = memfd_create(name.c_str(), flags | MFD_CLOEXEC | MFD_ALLOW_SEALING | MFD_NOEXEC_SEAL);
  if (made >= 0 || errno != EINVAL) return made;
  return memfd_create(name.c_str(), flags | MFD_CLOEXEC | MFD_ALLOW_SEALING);
}

uint64_t ReadCount(const std::string& path) {
  uint64_t number = 0;
  std::ifstream(path) >> number;
  return number;
}

// Returns the bytes of huge pages that can be taken, apart from those that others have a claim to.
uint64_t FreeReserved() {
  const std::string folder = "/sys/kernel/mm/hugepages/hugepages-2048kB/";
  const uint64_t free = ReadCount(folder + "free_hugepages"), claimed = ReadCount(folder + "resv_hugepages");
  const uint64_t more = ReadCount(folder + "nr_overcommit_hugepages"), taken = ReadCount(folder + "surplus_hugepages");
  return (free - std::min(free, claimed) + more - std::min(more, taken)) * kHuge;
}

// Returns the bytes of a mapping that are in huge pages, as the kernel tells.
size_t HugeBytesAt(const void* address) {
  std::ifstream mappings("/proc/self/smaps");
  const std::string begin = absl::StrCat(absl::Hex(reinterpret_cast<uintptr_t>(address)), "-");
  std::string line;
  while (std::getline(mappings, line) && line.compare(0, begin.size(), begin) != 0) {
  }
  constexpr char kKey[] = "ShmemPmdMapped:";
  while (std::getline(mappings, line)) {
    if (line.compare(0, sizeof(kKey) - 1, kKey) == 0)
      return std::strtoull(line.c_str() + sizeof(kKey) - 1, nullptr, 10) * 1024;
    if (line.compare(0, 8, "VmFlags:") == 0) break;
  }
  return 0;
}

// Makes huge pages of the pages of a mapping, and maps those that are huge as such. Advice, because there may be none.
void Collapse(uint8_t* data, size_t size) {
  for (size_t at = 0; at < size / kHuge * kHuge; at += kTakenAtOnce) {
    madvise(data + at, std::min(kTakenAtOnce, size / kHuge * kHuge - at), MADV_COLLAPSE);
  }
}

absl::Status NoMemory(uint64_t bytes, uint64_t free) {
  return absl::ResourceExhaustedError(
      absl::StrCat("resident: ", bytes, " bytes of memory needed, ", free, " are free"));
}

// While pages are taken, so that two tables do not count on the same ones.
std::mutex& TakingPages() {
  static auto* const mutex = new std::mutex;
  return *mutex;
}

}  // namespace

const char* PageKindName(PageKind kind) {
  switch (kind) {
    case PageKind::kReserved:
      return "reserved";
    case PageKind::kTransparent:
      return "transparent";
    case PageKind::kMixed:
      return "mixed";
    case PageKind::kSmall:
      break;
  }
  return "small";
}

absl::Status ResidentMemory::Create(const std::string& name, uint64_t bytes, const std::function<void()>& on_progress,
                                    std::unique_ptr<ResidentMemory>* memory) {
  std::lock_guard<std::mutex> lock(TakingPages());
  if (bytes >= kLeastReserved && FreeReserved() >= bytes) {
    std::unique_ptr<ResidentMemory> taken(new ResidentMemory);
    if (taken->TakeReserved(name, bytes, on_progress).ok()) {
      *memory = std::move(taken);
      return absl::OkStatus();
    }
  }
  std::unique_ptr<ResidentMemory> taken(new ResidentMemory);
  if (absl::Status s = taken->TakePages(name, bytes, on_progress); !s.ok()) return s;
  *memory = std::move(taken);
  return absl::OkStatus();
}

absl::Status ResidentMemory::TakeReserved(const std::string& name, uint64_t bytes,
                                          const std::function<void()>& on_progress) {
  descriptor_ = MakeMemfd(name, MFD_HUGETLB | MFD_HUGE_2MB);
  if (descriptor_ < 0) return absl::UnavailableError(std::strerror(errno));
  page_bytes_ = kHuge;
  size_ = huge_bytes_ = UpTo(bytes, kHuge);
  kind_ = PageKind::kReserved;
  if (ftruncate(descriptor_, static_cast<off_t>(size_)) != 0) return absl::UnavailableError(std::strerror(errno));
  // A page that is first taken by writing to it would end the process if there is none.
  for (size_t at = 0; at < size_; at += kTakenAtOnce) {
    const size_t part = std::min(kTakenAtOnce, size_ - at);
    if (fallocate(descriptor_, 0, static_cast<off_t>(at), static_cast<off_t>(part)) != 0) {
      return absl::ResourceExhaustedError(std::strerror(errno));
    }
    if (on_progress) on_progress();
  }
  return Map(PROT_READ | PROT_WRITE);
}

absl::Status ResidentMemory::TakePages(const std::string& name, uint64_t bytes,
                                       const std::function<void()>& on_progress) {
  // The kernel would end some process rather than refuse pages.
  const auto available = static_cast<uint64_t>(MemoryFree()), free = available - available / kLeftToOthers;
  if (bytes > free) return NoMemory(bytes, free);
  descriptor_ = MakeMemfd(name, 0);
  if (descriptor_ < 0) {
    return absl::UnavailableError(absl::StrCat("resident: no memory without a name: ", std::strerror(errno)));
  }
  size_ = UpTo(bytes, kSmallPage);
  if (ftruncate(descriptor_, static_cast<off_t>(size_)) != 0) return NoMemory(bytes, free);
  if (absl::Status s = Map(PROT_READ | PROT_WRITE); !s.ok()) return s;
  for (size_t at = 0; at < size_; at += kTakenAtOnce) {
    const size_t part = std::min(kTakenAtOnce, size_ - at);
    // Of a block without any page, the kernel makes no huge one.
    for (size_t block = at; block + kHuge <= at + part; block += kHuge) {
      if (fallocate(descriptor_, 0, static_cast<off_t>(block), kSmallPage) != 0) return NoMemory(bytes, free);
      static_cast<void>(*static_cast<volatile uint8_t*>(data_ + block));
    }
    Collapse(data_ + at, part);
    if (fallocate(descriptor_, 0, static_cast<off_t>(at), static_cast<off_t>(part)) != 0) return NoMemory(bytes, free);
    if (on_progress) on_progress();
  }
  return absl::OkStatus();
}

absl::Status ResidentMemory::Adopt(int descriptor, uint64_t bytes, std::unique_ptr<ResidentMemory>* memory) {
  std::unique_ptr<ResidentMemory> adopted(new ResidentMemory);
  adopted->descriptor_ = descriptor;
  struct stat found = {};
  struct statfs system = {};
  if (fstat(descriptor, &found) != 0 || fstatfs(descriptor, &system) != 0 || !S_ISREG(found.st_mode)) {
    return absl::FailedPreconditionError("no memory that can be shared");
  }
  if (found.st_uid != geteuid()) return absl::FailedPreconditionError("memory of another user");
  const auto kind = static_cast<int64_t>(system.f_type);
  if (kind != kTmpfs && kind != kHugetlbfs) return absl::FailedPreconditionError("a file, expected memory");
  const int seals = fcntl(descriptor, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) {
    return absl::FailedPreconditionError("memory that is not sealed");
  }
  if (kind == kHugetlbfs) adopted->page_bytes_ = static_cast<size_t>(system.f_bsize);
  adopted->size_ = UpTo(bytes, adopted->page_bytes_);
  if (static_cast<uint64_t>(found.st_size) != adopted->size_) {
    return absl::FailedPreconditionError(
        absl::StrCat("memory of ", found.st_size, " bytes, expected ", adopted->size_));
  }
  if (kind == kHugetlbfs) {
    adopted->kind_ = PageKind::kReserved;
    adopted->huge_bytes_ = adopted->size_;
  }
  if (absl::Status s = adopted->MapForReading(); !s.ok()) return s;
  *memory = std::move(adopted);
  return absl::OkStatus();
}

ResidentMemory::~ResidentMemory() {
  UnmapInSlices(data_, data_ == nullptr ? 0 : size_);
  if (descriptor_ >= 0) close(descriptor_);
}

absl::Status ResidentMemory::Map(int protection) {
  const size_t reserved = size_ + kHuge;
  void* const range = mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (range == MAP_FAILED)
    return absl::ResourceExhaustedError(absl::StrCat("resident: ", size_, " bytes of addresses"));
  auto* const begin = static_cast<uint8_t*>(range);
  uint8_t* const aligned =
      begin + (UpTo(reinterpret_cast<uintptr_t>(begin), kHuge) - reinterpret_cast<uintptr_t>(begin));
  const bool is_mapped = mmap(aligned, size_, protection, MAP_SHARED | MAP_FIXED, descriptor_, 0) != MAP_FAILED;
  const int error = errno;
  uint8_t* const end = is_mapped ? aligned + size_ : begin;
  if (is_mapped && aligned != begin) munmap(begin, static_cast<size_t>(aligned - begin));
  munmap(end, static_cast<size_t>(begin + reserved - end));
  if (!is_mapped) {
    return absl::ResourceExhaustedError(
        absl::StrCat("resident: ", size_, " bytes cannot be mapped: ", std::strerror(error)));
  }
  data_ = aligned;
  if (page_bytes_ == kSmallPage) madvise(data_, size_, MADV_HUGEPAGE);  // advice: an error changes nothing
  return absl::OkStatus();
}

absl::Status ResidentMemory::Seal() {
  UnmapInSlices(std::exchange(data_, nullptr), size_);
  if (fcntl(descriptor_, F_ADD_SEALS, kSeals) != 0) {
    return absl::UnavailableError(absl::StrCat("resident: memory cannot be sealed: ", std::strerror(errno)));
  }
  is_sealed_ = true;
  // Before Linux 6.7, what can be written as a file cannot be mapped in the same way as others map it.
  const int reading = open(absl::StrCat("/proc/self/fd/", descriptor_).c_str(), O_RDONLY | O_CLOEXEC);
  if (reading >= 0) {
    close(std::exchange(descriptor_, reading));
  }
  return MapForReading();
}

absl::Status ResidentMemory::MapForReading() {
  is_sealed_ = true;
  if (absl::Status s = Map(PROT_READ); !s.ok()) return s;
  if (page_bytes_ != kSmallPage) {
    PrefaultPages(data_, size_);
    return absl::OkStatus();
  }
  const size_t whole = size_ / kHuge * kHuge;
  Collapse(data_, size_);
  PrefaultPages(data_, size_);
  huge_bytes_ = whole == 0 ? 0 : HugeBytesAt(data_);
  kind_ = huge_bytes_ == 0 ? PageKind::kSmall : huge_bytes_ >= whole ? PageKind::kTransparent : PageKind::kMixed;
  return absl::OkStatus();
}

bool ResidentMemory::MapAt(uint8_t* address, size_t bytes) const {
  if (mmap(address, bytes, PROT_READ, MAP_SHARED | MAP_FIXED, descriptor_, 0) == MAP_FAILED) return false;
  if (page_bytes_ == kSmallPage) {
    madvise(address, bytes, MADV_HUGEPAGE);
    if (huge_bytes_ > 0 && reinterpret_cast<uintptr_t>(address) % kHuge == 0) Collapse(address, bytes);
  }
  return true;
}

}  // namespace processor
