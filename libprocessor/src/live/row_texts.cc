// SPDX-License-Identifier: Apache-2.0
#include "src/live/row_texts.h"

#include <algorithm>
#include <cstring>

namespace processor {
namespace {

constexpr uint64_t kTextPage = 4096;
// Texts that are replaced by longer ones leave records that nobody can use for a while.
constexpr uint64_t kRoomForChanges = 8;
constexpr uint64_t kLeastTextBytes = uint64_t{64} << 20;

}  // namespace

RowTexts::~RowTexts() {
  if (places_ != nullptr) UnmapMemory(places_, rows_ * sizeof(places_[0]));
}

bool RowTexts::Create(uint64_t rows, uint64_t bytes) {
  const uint64_t most = uint64_t{UINT32_MAX} * kUnit / kTextPage * kTextPage;
  const uint64_t wanted = kRoomForChanges * (bytes + rows * 2 * kUnit) + kLeastTextBytes;
  const uint64_t reserved = std::min(wanted / kTextPage * kTextPage, most);
  void* const places = MapMemory(std::max<uint64_t>(rows, 1) * sizeof(places_[0]), kTextPage);
  if (places == nullptr) return false;
  rows_ = std::max<uint64_t>(rows, 1);
  places_ = static_cast<std::atomic<uint32_t>*>(places);
  capacity_ = reserved / kUnit;
  return memory_.Reserve(reserved) && memory_.Commit(kUnit);
}

int RowTexts::ClassOf(size_t text_bytes) {
  const size_t units = (sizeof(uint32_t) + text_bytes + kUnit - 1) / kUnit;
  if (units <= kExact) return static_cast<int>(units) - 1;
  int size_class = kExact;
  while (UnitsOf(size_class) < units) ++size_class;
  return size_class;
}

size_t RowTexts::UnitsOf(int size_class) {
  return size_class < kExact ? static_cast<size_t>(size_class) + 1 : size_t{kExact} << (size_class - kExact + 1);
}

bool RowTexts::Set(uint32_t row, std::string_view text) noexcept {
  const int size_class = ClassOf(text.size());
  uint32_t place = free_[size_class];
  if (place != 0) {
    free_[size_class] = *reinterpret_cast<const uint32_t*>(memory_.data() + size_t{place} * kUnit);
  } else {
    const size_t end = used_ + UnitsOf(size_class);
    if (end > capacity_ || !memory_.Commit(end * kUnit)) return false;
    place = used_;
    used_ = static_cast<uint32_t>(end);
  }
  uint8_t* const record = memory_.data() + size_t{place} * kUnit;
  *reinterpret_cast<uint32_t*>(record) = static_cast<uint32_t>(text.size());
  if (!text.empty()) std::memcpy(record + sizeof(uint32_t), text.data(), text.size());
  places_[row].store(place, std::memory_order_relaxed);  // the index publishes it
  return true;
}

void RowTexts::Free(uint32_t row) noexcept {
  const uint32_t place = places_[row].load(std::memory_order_relaxed);
  if (place == 0) return;
  const int size_class = ClassOf(At(row).size());
  *reinterpret_cast<uint32_t*>(memory_.data() + size_t{place} * kUnit) = free_[size_class];
  free_[size_class] = place;
  places_[row].store(0, std::memory_order_relaxed);
}

}  // namespace processor
