// SPDX-License-Identifier: Apache-2.0
// Helpers of the sources that implement row_rules.h.
#ifndef PROCESSOR_RUNTIME_ROWS_ROW_RULES_INTERNAL_H_
#define PROCESSOR_RUNTIME_ROWS_ROW_RULES_INTERNAL_H_

#include <cstdint>
#include <map>
#include <optional>
#include <string>

#include "src/runtime/rows/row_rules.h"

namespace processor::row_rules {

inline constexpr char kNotSeen[] = "is not seen to act on each row alone";
inline constexpr char kCombines[] = "combines rows with each other";

inline RowValue UnknownRank() { return RowValue::Unknown("takes a tensor of a rank that is not known"); }

/// Returns the value of a tensor that depends on all rows. Integers are mostly sizes, such as the length of the longest
/// list, and scores may still depend on their own row alone; floats are taken to be what the scores depend on.
inline RowValue OfFloats(tensorflow::DataType dtype, const char* why) {
  return tensorflow::DataTypeIsFloating(tensorflow::BaseType(dtype)) ? RowValue::Mixed(why) : RowValue::Unknown(why);
}

/// Whether all other inputs are the same for all requests.
inline bool OnlyRows(const RowNode& n, int data) {
  for (int i = 0; i < n.size(); ++i) {
    if (i == data ? !n.IsRows(i) : !n.IsFree(i)) return false;
  }
  return true;
}

inline int Wrap(int64_t axis, int rank) { return static_cast<int>(axis < 0 ? axis + rank : axis); }

/// Returns the axis that an input names; no value if it is not known, or counts from the end of an unknown rank.
inline std::optional<int> AxisOf(const RowNode& n, int input, int rank) {
  const SizePairs axis = n.numbers(input);
  if (!axis.has_value() || axis->size() != 1 || axis->front().open()) return std::nullopt;
  if (rank < 0 && axis->front().first < 0) return std::nullopt;
  return Wrap(axis->front().first, rank);
}

int IntAttr(const RowNode& n, const char* name, int missing);

/// Rules of ops that change shapes: products, reshapes, slices, gathers.
std::map<std::string, RowRule> ShapedRules();

}  // namespace processor::row_rules

#endif  // PROCESSOR_RUNTIME_ROWS_ROW_RULES_INTERNAL_H_
