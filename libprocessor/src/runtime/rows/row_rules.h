// SPDX-License-Identifier: Apache-2.0
// The rules by which row_proof.h follows rows through a graph: how each op treats the rows of a request. Pure
// functions.
//
// Shapes and values are known for two numbers of rows: a size that differs between the two depends on the number of
// rows.
#ifndef PROCESSOR_RUNTIME_ROWS_ROW_RULES_H_
#define PROCESSOR_RUNTIME_ROWS_ROW_RULES_H_

#include <cstdint>
#include <functional>
#include <optional>
#include <vector>

#include "tensorflow/core/graph/graph.h"

namespace processor {

/// A size or number for the first and the second number of rows. -1: not known.
struct SizePair {
  int64_t first = -1;
  int64_t second = -1;

  bool known() const { return first >= 0 && second >= 0; }
  bool open() const { return first != second; }  // depends on the number of rows
  bool operator==(const SizePair& other) const { return first == other.first && second == other.second; }
};

/// The sizes of a tensor; no value if its rank is not known.
using SizePairs = std::optional<std::vector<SizePair>>;

/// How a tensor depends on the rows of a request.
struct RowValue {
  enum class Kind {
    kFree,     // it is the same for all requests
    kSizes,    // it depends on the number of rows, and on nothing else of a request
    kRows,     // dimension `axis` counts rows, or several places for each row; each place depends on its row alone
    kUnknown,  // it is not known what it depends on
    kMixed,    // a place depends on several rows
  };
  Kind kind = Kind::kUnknown;
  int axis = 0;
  /// kUnknown, kMixed: what the op does, as a clause after its name; a string constant.
  const char* why = nullptr;

  static RowValue Free() { return {Kind::kFree}; }
  static RowValue Rows(int axis) { return {Kind::kRows, axis}; }
  static RowValue Unknown(const char* why) { return {Kind::kUnknown, 0, why}; }
  static RowValue Mixed(const char* why) { return {Kind::kMixed, 0, why}; }
};

/// A node as the rules see it.
struct RowNode {
  const tensorflow::Node& node;
  std::vector<RowValue> inputs;
  std::vector<SizePairs> shapes;  // of the inputs
  SizePairs shape;                // of output 0
  /// The numbers in a small integer tensor; no value if they depend on more than the number of rows.
  std::function<SizePairs(int input)> numbers;

  bool IsFree(int input) const { return inputs[input].kind == RowValue::Kind::kFree; }
  bool IsRows(int input) const { return inputs[input].kind == RowValue::Kind::kRows; }
  bool IsSizes(int input) const { return inputs[input].kind == RowValue::Kind::kSizes; }
  int size() const { return static_cast<int>(inputs.size()); }
  /// -1 if it is not known.
  int rank(int input) const { return shapes[input].has_value() ? static_cast<int>(shapes[input]->size()) : -1; }
};

using RowRule = RowValue (*)(const RowNode& node);

/// Returns the rule of an op for inputs of which some have rows, and none is kUnknown or kMixed; null if there is none.
RowRule FindRowRule(const std::string& op);

/// Returns the rule of an op that makes rows from their number; null if it does not.
RowRule FindFillRule(const std::string& op);

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_ROWS_ROW_RULES_H_
