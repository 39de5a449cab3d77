// SPDX-License-Identifier: Apache-2.0
#include "src/live/changed_rows.h"

#include <sys/mman.h>

#include <algorithm>

#include "src/base/mapped_memory.h"

namespace processor {
namespace {

constexpr size_t kSmallPageBytes = 4096;
constexpr size_t kLargePageBytes = size_t{2} << 20;
constexpr size_t kLargeGroupsFrom = size_t{1} << 20;
// Few sizes, so that runs are used again; those of up to eight places lie in one cache line. One place has the bits.
constexpr uint32_t kRunSizes[] = {2, 4, 8, 16, 24, 32, 48, ChangedRows::kMostPlaces};
constexpr uint32_t kLinePlaces = 8;
// A group that grows row by row leaves a run of each size, and requests that take long keep runs that were replaced.
constexpr uint64_t kPlacesOfGroup = 1024;
constexpr uint64_t kLeastPlaces = uint64_t{1} << 20;
constexpr uint64_t kLastPlace = (uint64_t{1} << 32) - 128;

size_t RoundedUpTo(size_t multiple, size_t bytes) { return (bytes + multiple - 1) / multiple * multiple; }

}  // namespace

std::unique_ptr<ChangedRows> ChangedRows::Create(uint64_t rows) {
  std::unique_ptr<ChangedRows> made(new ChangedRows());
  made->groups_ = rows / kGroupRows + 1;
  // Requests read them at random; with small pages, each read would also look for the page.
  const size_t bytes_of_groups = made->groups_ * (sizeof(uint64_t) + sizeof(uint32_t));
  const size_t page = bytes_of_groups < kLargeGroupsFrom ? kSmallPageBytes : kLargePageBytes;
  made->group_bytes_ = RoundedUpTo(page, bytes_of_groups);
  void* const groups = MapMemory(made->group_bytes_, page);
  if (groups == nullptr) return nullptr;
  if (page != kSmallPageBytes) madvise(groups, made->group_bytes_, MADV_HUGEPAGE);
  made->bits_ = static_cast<std::atomic<uint64_t>*>(groups);
  made->runs_ = reinterpret_cast<std::atomic<uint32_t>*>(made->bits_ + made->groups_);
  made->capacity_ = std::clamp(made->groups_ * kPlacesOfGroup, kLeastPlaces, kLastPlace);
  static_assert(sizeof(*made->bits_) == 8 && sizeof(*made->runs_) == 4, "pages of zeros are empty groups");
  const size_t bytes = RoundedUpTo(kSmallPageBytes, made->capacity_ * sizeof(VersionRef));
  // Place 0 is a run without bits.
  if (!made->memory_.Reserve(bytes) || !made->memory_.Commit(2 * sizeof(VersionRef))) return nullptr;
  made->versions_ = reinterpret_cast<std::atomic<VersionRef>*>(made->memory_.data());
  made->used_ = 2;
  return made;
}

ChangedRows::~ChangedRows() {
  if (bits_ != nullptr) UnmapMemory(bits_, group_bytes_);
}

size_t ChangedRows::bytes() const { return group_bytes_ + used_ * sizeof(VersionRef) + retired_.bytes(); }

int ChangedRows::SizeOf(uint64_t rows) {
  return static_cast<int>(std::lower_bound(std::begin(kRunSizes), std::end(kRunSizes), CountOf(rows) + 1) - kRunSizes);
}

size_t ChangedRows::PlacesFor(uint32_t row, uint64_t rows) const {
  const uint64_t before = Group(row);
  return (before | rows) == before ? 0 : kRunSizes[SizeOf(before | rows)];
}

bool ChangedRows::Reserve(size_t groups, size_t places) {
  retired_.Reserve(groups);
  // What is lost at the ends of lines is less than what is asked for.
  const uint64_t end = used_ + 2 * places + kLinePlaces;
  return end <= capacity_ && memory_.Commit(end * sizeof(VersionRef));
}

uint32_t ChangedRows::Take(int size) noexcept {
  if (free_[size] == 0) {
    for (; used_ % std::min(kRunSizes[size], kLinePlaces) != 0; used_ += kRunSizes[0]) {
      Free({static_cast<uint32_t>(used_), 0});
    }
    const auto place = static_cast<uint32_t>(used_);
    used_ += kRunSizes[size];
    return place;
  }
  const uint32_t place = free_[size];
  free_[size] = static_cast<uint32_t>(versions_[place].load(std::memory_order_relaxed));
  return place;
}

void ChangedRows::Set(uint32_t row, uint64_t rows, uint64_t generation) noexcept {
  const uint64_t before = bits_[row / kGroupRows].load(std::memory_order_relaxed);
  if (before == rows) return;
  std::atomic<uint32_t>& run = runs_[row / kGroupRows];
  const uint32_t old = run.load(std::memory_order_relaxed);
  uint32_t place = 0;
  if (rows != 0) {
    place = Take(SizeOf(rows));
    versions_[place].store(rows, std::memory_order_relaxed);
    uint32_t next = place;
    for (uint64_t left = rows; left != 0; left &= left - 1) {
      const std::atomic<VersionRef>* const newest =
          Newest(static_cast<uint32_t>(__builtin_ctzll(left)) + row / kGroupRows * kGroupRows);
      versions_[++next].store(newest == nullptr ? 0 : newest->load(std::memory_order_relaxed),
                              std::memory_order_relaxed);
    }
  }
  // Who finds a bit finds the run that has it, or one from which it has been removed.
  run.store(place, std::memory_order_release);
  bits_[row / kGroupRows].store(rows, std::memory_order_release);
  size_ = size_ + CountOf(rows) - CountOf(before);
  if (old != 0) retired_.Add(generation, {old, SizeOf(before)});
}

void ChangedRows::Free(Run run) noexcept {
  versions_[run.place].store(free_[run.size], std::memory_order_relaxed);
  free_[run.size] = run.place;
}

void ChangedRows::Release(uint64_t oldest) noexcept {
  retired_.Release(oldest, [this](Run run) { Free(run); });
}

}  // namespace processor
