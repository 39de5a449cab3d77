// SPDX-License-Identifier: Apache-2.0
#include "src/live/finite_changes.h"

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"

namespace processor {
namespace {

// Returns the first of n numbers that is not finite, or n.
size_t FindNotFinite(const float* values, size_t n) {
  // The loop without an exit is several times as fast, and nearly all rows are finite.
  bool finite = true;
  for (size_t i = 0; i < n; ++i) finite &= std::isfinite(values[i]);
  if (finite) return n;
  size_t i = 0;
  while (std::isfinite(values[i])) ++i;
  return i;
}

absl::Status CheckRows(const DeltaTable& delta, const float* rows, size_t count) {
  const size_t elements = count * delta.dim;
  const size_t at = FindNotFinite(rows, elements);
  if (at == elements) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat(NameOfRow(delta, rows + at / delta.dim * delta.dim), ": element ",
                                                 at % delta.dim, " is ", rows[at], ", expected a finite number"));
}

}  // namespace

std::string NameOfRow(const DeltaTable& delta, const float* values) {
  const auto at = static_cast<size_t>(values - delta.rows) / delta.dim;
  if (delta.rows == nullptr || values < delta.rows || at >= delta.changed.count) {
    const auto number = static_cast<size_t>(values - delta.default_rows) / delta.dim;
    return absl::StrCat("default row ", delta.default_numbers[number]);
  }
  if (delta.changed.kind == DeltaKeyKind::kRowNumber) return absl::StrCat("row ", delta.changed.integers[at]);
  if (delta.changed.kind == DeltaKeyKind::kInt64) return absl::StrCat("key ", delta.changed.integers[at]);
  return absl::StrCat("key '", absl::CHexEscape(delta.changed.string(at).substr(0, 100)), "'");
}

absl::Status CheckFinite(const DeltaTable& delta) {
  if (absl::Status s = CheckRows(delta, delta.rows, delta.changed.count); !s.ok()) return s;
  return CheckRows(delta, delta.default_rows, delta.default_numbers.size());
}

absl::Status CheckFinite(const DeltaVariable& delta) {
  size_t elements = 1;
  for (const int64_t size : delta.shape) elements *= static_cast<size_t>(size);
  const size_t at = FindNotFinite(delta.data, elements);
  if (at == elements) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("element ", at, " is ", delta.data[at], ", expected a finite number"));
}

}  // namespace processor
