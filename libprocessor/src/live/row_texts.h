// SPDX-License-Identifier: Apache-2.0
// The bytes of string keys, by the row of the key.
#ifndef PROCESSOR_LIVE_ROW_TEXTS_H_
#define PROCESSOR_LIVE_ROW_TEXTS_H_

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "src/base/mapped_memory.h"
#include "src/live/committed_memory.h"

namespace processor {

/// One thread sets and frees texts while others read those of rows that they were led to. What is freed is used again, so
/// that nobody may read it any more.
class RowTexts {
 public:
  RowTexts() = default;
  ~RowTexts();
  RowTexts(const RowTexts&) = delete;
  RowTexts& operator=(const RowTexts&) = delete;

  /// Makes room for the texts of `rows` rows, which have about `bytes` altogether. \return false if there is no memory.
  bool Create(uint64_t rows, uint64_t bytes);

  /// Prefetches where a text is; then the text.
  void FetchPlace(uint32_t row) const { __builtin_prefetch(&places_[row]); }
  void Fetch(uint32_t row) const { __builtin_prefetch(Record(row)); }
  /// Returns the text of a row, which has one.
  std::string_view At(uint32_t row) const {
    const uint8_t* const record = Record(row);
    return {reinterpret_cast<const char*>(record + sizeof(uint32_t)), *reinterpret_cast<const uint32_t*>(record)};
  }

  // For the writer:
  /// \return false if there is no memory.
  bool Set(uint32_t row, std::string_view text) noexcept;
  void Free(uint32_t row) noexcept;
  size_t bytes() const { return rows_ * sizeof(places_[0]) + size_t{used_} * kUnit; }

 private:
  // A record is the size of the text and its bytes, in units of 8 bytes. Those of up to kExact units have exactly what they
  // need, larger ones a power of two.
  static constexpr size_t kUnit = 8;
  static constexpr int kExact = 64;
  static constexpr int kClasses = kExact + 27;

  const uint8_t* Record(uint32_t row) const {
    return memory_.data() + size_t{places_[row].load(std::memory_order_relaxed)} * kUnit;
  }
  static int ClassOf(size_t text_bytes);
  static size_t UnitsOf(int size_class);

  uint64_t rows_ = 0;
  std::atomic<uint32_t>* places_ = nullptr;  // of each row, the unit at which its record begins; 0: none
  CommittedMemory memory_;
  uint64_t capacity_ = 0;         // units
  uint32_t used_ = 1;             // units, from the beginning on
  uint32_t free_[kClasses] = {};  // the first free record of each class, which leads to the next; 0: none
};

}  // namespace processor

#endif  // PROCESSOR_LIVE_ROW_TEXTS_H_
