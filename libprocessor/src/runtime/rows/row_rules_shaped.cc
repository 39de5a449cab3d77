// SPDX-License-Identifier: Apache-2.0
// Rules of ops that change shapes: products, reshapes, slices, gathers.
#include <algorithm>
#include <set>
#include <vector>

#include "absl/strings/str_split.h"
#include "src/runtime/rows/row_rules_internal.h"
#include "tensorflow/core/framework/node_def_util.h"

namespace processor {
namespace row_rules {
namespace {

bool BoolAttr(const RowNode& n, const char* name) {
  bool value = false;
  (void)tensorflow::GetNodeAttr(n.node.attrs(), name, &value);
  return value;
}

// Returns the product of all sizes before `end`, for both numbers of rows.
std::optional<SizePair> Product(const std::vector<SizePair>& sizes, size_t end) {
  SizePair product{1, 1};
  for (size_t i = 0; i < end; ++i) {
    if (!sizes[i].known()) return std::nullopt;
    product.first *= sizes[i].first;
    product.second *= sizes[i].second;
  }
  return product;
}

// Returns the dimension that depends on the number of rows, if there is one.
std::optional<int> OpenAxis(const SizePairs& shape) {
  std::optional<int> found;
  if (!shape.has_value()) return std::nullopt;
  for (size_t i = 0; i < shape->size(); ++i) {
    if (!(*shape)[i].known()) return std::nullopt;
    if (!(*shape)[i].open()) continue;
    if (found.has_value()) return std::nullopt;
    found = static_cast<int>(i);
  }
  return found;
}

// A reshape keeps the order of elements, so rows stay whole if as many elements precede the dimension of rows.
RowValue Reshape(const RowNode& n) {
  if (!n.IsRows(0) || n.IsRows(1)) return RowValue::Unknown(kNotSeen);
  const std::optional<int> axis = OpenAxis(n.shape);
  if (!axis.has_value() || n.rank(0) < 0) return RowValue::Unknown("gives a shape that is not known");
  const std::vector<SizePair>&before = *n.shapes[0], &after = *n.shape;
  const auto from = Product(before, n.inputs[0].axis), to = Product(after, *axis);
  const auto all = Product(before, before.size()), all_after = Product(after, after.size());
  if (!from || !to || !all || !all_after || !(*from == *to) || !(*all == *all_after)) {
    return RowValue::Unknown(kNotSeen);
  }
  return RowValue::Rows(*axis);
}

RowValue Transpose(const RowNode& n) {
  const SizePairs order = n.numbers(1);
  if (!OnlyRows(n, 0) || !order.has_value()) return RowValue::Unknown(kNotSeen);
  for (size_t i = 0; i < order->size(); ++i) {
    if (Wrap((*order)[i].first, static_cast<int>(order->size())) == n.inputs[0].axis) {
      return RowValue::Rows(static_cast<int>(i));
    }
  }
  return RowValue::Unknown(kNotSeen);
}

// Handles a product of matrices with `rank` dimensions each (or fewer, counted from the last one).
RowValue Product(const RowNode& n, bool transpose_a, bool transpose_b) {
  if (n.rank(0) < 2 || n.rank(1) < 2) return UnknownRank();
  const int rank = std::max(n.rank(0), n.rank(1));
  // Dimensions are counted from the last: 1 and 2 are those of the matrix.
  const int a = n.rank(0) - n.inputs[0].axis, b = n.rank(1) - n.inputs[1].axis;
  const int inner_a = transpose_a ? 2 : 1, inner_b = transpose_b ? 1 : 2;
  if (n.IsSizes(0) || n.IsSizes(1)) return OfFloats(n.node.input_type(0), "depends on the number of rows");
  if (n.IsRows(0) && n.IsRows(1)) {
    return a == b && a > 2 ? RowValue::Rows(rank - a) : RowValue::Mixed(kCombines);
  }
  const bool first = n.IsRows(0);
  const int at = first ? a : b, other = first ? 1 : 0;
  if (at == (first ? inner_a : inner_b)) return RowValue::Mixed("sums over rows");
  if (at > 2) {
    const int position = n.rank(other) - at;
    const bool broadcast = position < 0 || (*n.shapes[other])[position] == SizePair{1, 1};
    return broadcast ? RowValue::Rows(rank - at) : RowValue::Unknown(kNotSeen);
  }
  return RowValue::Rows(first ? rank - 2 : rank - 1);
}

RowValue MatMul(const RowNode& n) { return Product(n, BoolAttr(n, "transpose_a"), BoolAttr(n, "transpose_b")); }
RowValue BatchMatMul(const RowNode& n) { return Product(n, BoolAttr(n, "adj_x"), BoolAttr(n, "adj_y")); }

RowValue Einsum(const RowNode& n) {
  std::string equation;
  (void)tensorflow::GetNodeAttr(n.node.attrs(), "equation", &equation);
  equation.erase(std::remove(equation.begin(), equation.end(), ' '), equation.end());
  const std::vector<std::string> sides = absl::StrSplit(equation, "->");
  if (sides.size() != 2 || equation.find('.') != std::string::npos) return RowValue::Unknown(kNotSeen);
  const std::vector<std::string> operands = absl::StrSplit(sides[0], ',');
  if (operands.size() != n.inputs.size()) return RowValue::Unknown(kNotSeen);
  char rows = 0;
  for (int i = 0; i < n.size(); ++i) {
    if (n.IsSizes(i)) return RowValue::Mixed("depends on the number of rows");
    if (!n.IsRows(i)) continue;
    if (n.inputs[i].axis >= static_cast<int>(operands[i].size())) return RowValue::Unknown(kNotSeen);
    const char letter = operands[i][n.inputs[i].axis];
    if ((rows != 0 && letter != rows) || std::count(operands[i].begin(), operands[i].end(), letter) != 1) {
      return RowValue::Mixed(kCombines);
    }
    rows = letter;
  }
  for (int i = 0; i < n.size(); ++i) {
    if (n.IsFree(i) && operands[i].find(rows) != std::string::npos) return RowValue::Unknown(kNotSeen);
  }
  const size_t at = sides[1].find(rows);
  return at == std::string::npos ? RowValue::Mixed("sums over rows") : RowValue::Rows(static_cast<int>(at));
}

RowValue Gather(const RowNode& n) {
  const bool resource = n.node.type_string() == "ResourceGather";
  int axis = 0;
  if (n.size() > 2) {
    const std::optional<int> found = AxisOf(n, 2, n.rank(0));
    if (!found.has_value()) return UnknownRank();
    axis = *found;
  }
  int batch = IntAttr(n, "batch_dims", 0);
  if (n.IsFree(0)) {
    if (batch != 0 || !n.IsRows(1)) return RowValue::Unknown(kNotSeen);
    return RowValue::Rows((resource ? 0 : axis) + n.inputs[1].axis);
  }
  if (!n.IsRows(0) || n.rank(0) < 0 || n.rank(1) < 0) return RowValue::Unknown(kNotSeen);
  const int rows = n.inputs[0].axis;
  if (n.IsFree(1)) {
    if (batch != 0) return RowValue::Unknown(kNotSeen);
    if (rows == axis) return RowValue::Mixed("takes certain rows for all");
    return RowValue::Rows(rows < axis ? rows : rows + n.rank(1) - 1);
  }
  batch = Wrap(batch, n.rank(1));
  const bool same = n.IsRows(1) && n.inputs[1].axis == rows && rows < batch && axis >= batch;
  return same ? RowValue::Rows(rows) : RowValue::Unknown(kNotSeen);
}

RowValue GatherNd(const RowNode& n) {
  const bool apart = n.IsFree(0) && n.IsRows(1) && n.rank(1) > 0 && n.inputs[1].axis + 1 < n.rank(1);
  return apart ? n.inputs[1] : RowValue::Unknown(kNotSeen);
}

// Handles x[begin:end:step, ...].
RowValue StridedSlice(const RowNode& n) {
  if (!n.IsRows(0) || n.rank(0) < 0) return UnknownRank();
  const SizePairs begin = n.numbers(1), end = n.numbers(2), step = n.numbers(3);
  if (!begin.has_value() || !end.has_value() || !step.has_value()) return RowValue::Unknown(kNotSeen);
  const int begin_mask = IntAttr(n, "begin_mask", 0), end_mask = IntAttr(n, "end_mask", 0);
  const int ellipsis = IntAttr(n, "ellipsis_mask", 0), added = IntAttr(n, "new_axis_mask", 0);
  const int shrunk = IntAttr(n, "shrink_axis_mask", 0);
  const int count = static_cast<int>(begin->size()), rows = n.inputs[0].axis;
  int named = 0;  // dimensions of the input to which the remaining entries refer
  for (int i = 0; i < count; ++i) named += ((added | ellipsis) >> i & 1) ? 0 : 1;
  int in = 0, out = 0;
  for (int i = 0; i < count; ++i) {
    if (ellipsis >> i & 1) {
      const int skipped = n.rank(0) - named;
      if (rows >= in && rows < in + skipped) return RowValue::Rows(out + rows - in);
      in += skipped;
      out += skipped;
    } else if (added >> i & 1) {
      ++out;
    } else if (in == rows) {
      const bool from_start = (begin_mask >> i & 1) || (*begin)[i] == SizePair{0, 0};
      const bool to_end = (end_mask >> i & 1) || ((*end)[i] == (*n.shapes[0])[rows] && (*end)[i].known());
      const bool whole = !(shrunk >> i & 1) && from_start && to_end && (*step)[i] == SizePair{1, 1};
      return whole ? RowValue::Rows(out) : OfFloats(n.node.input_type(0), "takes certain rows for all");
    } else {
      out += (shrunk >> i & 1) ? 0 : 1;
      ++in;
    }
  }
  return RowValue::Rows(out + rows - in);
}

RowValue Slice(const RowNode& n) {
  const SizePairs begin = n.numbers(1), size = n.numbers(2);
  if (!n.IsRows(0) || n.rank(0) < 0 || !begin.has_value() || !size.has_value()) return RowValue::Unknown(kNotSeen);
  const int rows = n.inputs[0].axis;
  const SizePair taken = (*size)[rows], all = (*n.shapes[0])[rows];
  const bool whole = (*begin)[rows] == SizePair{0, 0} && (taken == SizePair{-1, -1} || (all.known() && taken == all));
  return whole ? n.inputs[0] : OfFloats(n.node.input_type(0), "takes certain rows for all");
}

RowValue Tile(const RowNode& n) {
  const SizePairs times = n.numbers(1);
  if (!n.IsRows(0) || !times.has_value()) return RowValue::Unknown(kNotSeen);
  return (*times)[n.inputs[0].axis] == SizePair{1, 1} ? n.inputs[0] : RowValue::Unknown(kNotSeen);
}

RowValue BroadcastTo(const RowNode& n) {
  if (!n.IsRows(0) || n.rank(0) < 0 || !n.shape.has_value()) return RowValue::Unknown(kNotSeen);
  const int axis = n.inputs[0].axis + static_cast<int>(n.shape->size()) - n.rank(0);
  return (*n.shape)[axis] == (*n.shapes[0])[n.inputs[0].axis] && OpenAxis(n.shape) == axis
             ? RowValue::Rows(axis)
             : RowValue::Unknown(kNotSeen);
}

RowValue Pad(const RowNode& n) {
  const SizePairs padding = n.numbers(1);
  if (!OnlyRows(n, 0) || !padding.has_value()) return RowValue::Unknown(kNotSeen);
  const size_t at = 2 * static_cast<size_t>(n.inputs[0].axis);
  const bool none = at + 1 < padding->size() && (*padding)[at].first == 0 && (*padding)[at + 1].first == 0;
  return none ? n.inputs[0] : RowValue::Unknown(kNotSeen);
}

// Rows of one value, as many as the request has: the value is the same for all requests.
RowValue Filled(const RowNode& n) {
  const bool fill = n.node.type_string() == "Fill";
  const std::optional<int> axis = OpenAxis(n.shape);
  if (!axis.has_value() || !n.IsFree(fill ? 1 : 0)) return RowValue::Unknown(kNotSeen);
  if (fill) return RowValue::Rows(*axis);
  if (n.rank(0) < 0) return UnknownRank();
  const int at = *axis - static_cast<int>(n.shape->size()) + n.rank(0);
  const bool alike = at < 0 || (*n.shapes[0])[at] == SizePair{1, 1};
  return alike ? RowValue::Rows(*axis) : RowValue::Unknown(kNotSeen);
}

}  // namespace

int IntAttr(const RowNode& n, const char* name, int missing) {
  int64_t value = missing;
  (void)tensorflow::GetNodeAttr(n.node.attrs(), name, &value);
  return static_cast<int>(value);
}

std::map<std::string, RowRule> ShapedRules() {
  return {{"BatchMatMul", BatchMatMul},
          {"BatchMatMulV2", BatchMatMul},
          {"BatchMatMulV3", BatchMatMul},
          {"BroadcastTo", BroadcastTo},
          {"Einsum", Einsum},
          {"Gather", Gather},
          {"GatherNd", GatherNd},
          {"GatherV2", Gather},
          {"MatMul", MatMul},
          {"MirrorPad", Pad},
          {"Pad", Pad},
          {"PadV2", Pad},
          {"Reshape", Reshape},
          {"ResourceGather", Gather},
          {"ResourceGatherNd", GatherNd},
          {"Slice", Slice},
          {"StridedSlice", StridedSlice},
          {"Tile", Tile},
          {"Transpose", Transpose}};
}

}  // namespace row_rules

RowRule FindFillRule(const std::string& op) {
  return op == "Fill" || op == "Tile" || op == "BroadcastTo" ? row_rules::Filled : nullptr;
}

}  // namespace processor
