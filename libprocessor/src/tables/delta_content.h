// SPDX-License-Identifier: Apache-2.0
// What a segment contains (docs/delta_format.md): views of its bytes, which their owner keeps. Plain data.
#ifndef PROCESSOR_TABLES_DELTA_CONTENT_H_
#define PROCESSOR_TABLES_DELTA_CONTENT_H_

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "src/tables/delta_header.h"

namespace processor {

enum class DeltaKeyKind : uint32_t { kRowNumber = 0, kInt64 = 1, kString = 2 };

/// Keys in ascending order, without repetition.
struct DeltaKeys {
  DeltaKeyKind kind = DeltaKeyKind::kInt64;
  size_t count = 0;
  const int64_t* integers = nullptr;  // [count], of row numbers and integers
  const uint64_t* offsets = nullptr;  // [count + 1], of strings: where the bytes of each begin; null without keys
  const char* bytes = nullptr;        // of strings

  std::string_view string(size_t i) const { return {bytes + offsets[i], offsets[i + 1] - offsets[i]}; }
};

struct DeltaTable {
  std::string_view name;
  DeltaKeyKind key_kind = DeltaKeyKind::kInt64;
  uint32_t dim = 0;
  DeltaKeys changed;
  const float* rows = nullptr;  // [changed.count, dim]
  DeltaKeys deleted;
  absl::Span<const uint32_t> default_numbers;
  const float* default_rows = nullptr;  // [default_numbers.size(), dim]
};

struct DeltaVariable {
  std::string_view name;
  std::vector<int64_t> shape;
  const float* data = nullptr;  // row-major
};

struct DeltaStream {
  std::string_view name;
  uint64_t position = 0;  // of the next message
};

/// The records of each kind in ascending order of their names.
struct DeltaContent {
  std::vector<DeltaTable> tables;
  std::vector<DeltaVariable> variables;
  std::vector<DeltaStream> streams;
  absl::Span<const ChainHash> chains;  // of the first epoch up to the one before the last; empty if they are not listed
};

}  // namespace processor

#endif  // PROCESSOR_TABLES_DELTA_CONTENT_H_
