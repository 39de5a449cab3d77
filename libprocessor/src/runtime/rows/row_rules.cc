// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/rows/row_rules.h"

#include <algorithm>
#include <map>
#include <string>

#include "nlohmann/json.hpp"
#include "src/runtime/rows/row_rules_internal.h"
#include "tensorflow/core/framework/node_def_util.h"

namespace processor {
namespace row_rules {
namespace {

// Handles elementwise ops, whose inputs have equal shapes or are broadcast from the last dimension on.
RowValue Elementwise(const RowNode& n) {
  int rank = 0;
  for (int i = 0; i < n.size(); ++i) {
    if (n.rank(i) < 0) return UnknownRank();
    rank = std::max(rank, n.rank(i));
  }
  int from_end = 0;
  SizePair rows;
  for (int i = 0; i < n.size(); ++i) {
    if (n.IsSizes(i)) return OfFloats(n.node.input_type(i), "depends on the number of rows");
    if (!n.IsRows(i)) continue;
    const int at = n.rank(i) - n.inputs[i].axis;
    const SizePair size = (*n.shapes[i])[n.inputs[i].axis];
    if (from_end != 0 && at != from_end) return OfFloats(n.node.input_type(i), kCombines);
    if (from_end != 0 && !(size.known() && size == rows)) return RowValue::Unknown(kNotSeen);
    from_end = at;
    rows = size;
  }
  for (int i = 0; i < n.size(); ++i) {
    const int at = n.rank(i) - from_end;
    if (n.IsFree(i) && at >= 0 && !((*n.shapes[i])[at] == SizePair{1, 1})) return RowValue::Unknown(kNotSeen);
  }
  return RowValue::Rows(rank - from_end);
}

// Handles the first Select, whose condition may be a vector with an element for each row of the others.
RowValue Select(const RowNode& n) {
  if (n.rank(0) != 1 || n.rank(1) < 2) return Elementwise(n);
  for (int i = 0; i < 3; ++i) {
    if (!(n.IsRows(i) && n.inputs[i].axis == 0)) return RowValue::Unknown(kNotSeen);
  }
  return RowValue::Rows(0);
}

RowValue First(const RowNode& n) { return OnlyRows(n, 0) ? n.inputs[0] : RowValue::Unknown(kNotSeen); }
RowValue FirstOfAxisZero(const RowNode& n) {
  return OnlyRows(n, 0) && n.inputs[0].axis == 0 ? RowValue::Rows(0) : RowValue::Unknown(kNotSeen);
}
RowValue LookUp(const RowNode& n) { return OnlyRows(n, 1) ? n.inputs[1] : RowValue::Unknown(kNotSeen); }

// Handles inputs that have the same rows in the same dimension.
std::optional<int> CommonAxis(const RowNode& n, int begin, int end) {
  for (int i = begin; i < end; ++i) {
    if (!n.IsRows(i) || n.inputs[i].axis != n.inputs[begin].axis || n.rank(i) < 0) return std::nullopt;
  }
  return n.inputs[begin].axis;
}

RowValue AddN(const RowNode& n) {
  const std::optional<int> axis = CommonAxis(n, 0, n.size());
  return axis.has_value() ? RowValue::Rows(*axis) : RowValue::Unknown(kNotSeen);
}

RowValue Concat(const RowNode& n) {
  const std::optional<int> rows = CommonAxis(n, 0, n.size() - 1);
  const std::optional<int> axis = AxisOf(n, n.size() - 1, n.rank(0));
  return rows.has_value() && axis.has_value() && *axis != *rows ? RowValue::Rows(*rows) : RowValue::Unknown(kNotSeen);
}

RowValue Pack(const RowNode& n) {
  const std::optional<int> rows = CommonAxis(n, 0, n.size());
  if (!rows.has_value()) return RowValue::Unknown(kNotSeen);
  const int axis = Wrap(IntAttr(n, "axis", 0), n.rank(0) + 1);
  return RowValue::Rows(*rows + (axis <= *rows ? 1 : 0));
}

RowValue Unpack(const RowNode& n) {
  if (n.rank(0) < 0) return UnknownRank();
  const int axis = Wrap(IntAttr(n, "axis", 0), n.rank(0)), rows = n.inputs[0].axis;
  return axis == rows ? RowValue::Unknown(kNotSeen) : RowValue::Rows(rows - (axis < rows ? 1 : 0));
}

RowValue SplitInto(const RowNode& n, int data, int dimension) {
  if (!OnlyRows(n, data)) return RowValue::Unknown(kNotSeen);
  const std::optional<int> axis = AxisOf(n, dimension, n.rank(data));
  return axis.has_value() && *axis != n.inputs[data].axis ? n.inputs[data] : RowValue::Unknown(kNotSeen);
}
RowValue Split(const RowNode& n) { return SplitInto(n, 1, 0); }
RowValue SplitV(const RowNode& n) { return SplitInto(n, 0, 2); }

RowValue ExpandDims(const RowNode& n) {
  if (!OnlyRows(n, 0)) return RowValue::Unknown(kNotSeen);
  const std::optional<int> axis = AxisOf(n, 1, n.rank(0) < 0 ? -1 : n.rank(0) + 1);
  if (!axis.has_value()) return UnknownRank();
  return RowValue::Rows(n.inputs[0].axis + (*axis <= n.inputs[0].axis ? 1 : 0));
}

RowValue Squeeze(const RowNode& n) {
  std::vector<int64_t> axes;
  if (!tensorflow::GetNodeAttr(n.node.attrs(), "squeeze_dims", &axes).ok()) return RowValue::Unknown(kNotSeen);
  if (axes.empty()) return RowValue::Mixed("drops every dimension of 1, of a single row too");
  if (n.rank(0) < 0) return UnknownRank();
  int before = 0;
  for (const int64_t dim : axes) {
    const int axis = Wrap(dim, n.rank(0));
    if (axis == n.inputs[0].axis) return RowValue::Mixed("drops the dimension of rows");
    before += axis < n.inputs[0].axis ? 1 : 0;
  }
  return RowValue::Rows(n.inputs[0].axis - before);
}

RowValue Reduce(const RowNode& n) {
  const SizePairs axes = n.numbers(1);
  if (!OnlyRows(n, 0) || !axes.has_value()) return RowValue::Unknown(kNotSeen);
  if (n.rank(0) < 0) return UnknownRank();
  bool keep = false;
  (void)tensorflow::GetNodeAttr(n.node.attrs(), "keep_dims", &keep);
  int before = 0;
  for (const SizePair& number : *axes) {
    const int axis = Wrap(number.first, n.rank(0));
    if (axis == n.inputs[0].axis) return OfFloats(n.node.input_type(0), "reduces over rows");
    before += axis < n.inputs[0].axis ? 1 : 0;
  }
  return RowValue::Rows(n.inputs[0].axis - (keep ? 0 : before));
}

// Handles ops along the axis in input 1.
RowValue Along(const RowNode& n) {
  const SizePairs axes = n.numbers(1);
  if (!OnlyRows(n, 0) || !axes.has_value() || n.rank(0) < 0) return RowValue::Unknown(kNotSeen);
  for (const SizePair& number : *axes) {
    if (Wrap(number.first, n.rank(0)) == n.inputs[0].axis) return OfFloats(n.node.input_type(0), "goes along the rows");
  }
  return n.inputs[0];
}

RowValue ArgMax(const RowNode& n) {
  const RowValue found = Along(n);
  if (found.kind != RowValue::Kind::kRows) return found;
  const std::optional<int> axis = AxisOf(n, 1, n.rank(0));
  return RowValue::Rows(found.axis - (*axis < found.axis ? 1 : 0));
}

RowValue LastAxis(const RowNode& n) {
  if (!n.IsRows(0)) return RowValue::Unknown(kNotSeen);
  if (n.rank(0) < 0) return UnknownRank();
  if (n.inputs[0].axis + 1 == n.rank(0)) return OfFloats(n.node.input_type(0), "goes along the rows");
  return OnlyRows(n, 0) ? n.inputs[0] : RowValue::Unknown(kNotSeen);
}

RowValue BiasAdd(const RowNode& n) {
  std::string format;
  (void)tensorflow::GetNodeAttr(n.node.attrs(), "data_format", &format);
  if (format == "NCHW") return FirstOfAxisZero(n);
  return OnlyRows(n, 0) && n.rank(0) >= 0 && n.inputs[0].axis + 1 < n.rank(0) ? n.inputs[0]
                                                                              : RowValue::Unknown(kNotSeen);
}

RowValue BatchNorm(const RowNode& n) {
  bool training = true;
  (void)tensorflow::GetNodeAttr(n.node.attrs(), "is_training", &training);
  return training ? RowValue::Mixed("normalizes over the rows") : FirstOfAxisZero(n);
}

RowValue OneHot(const RowNode& n) {
  if (!OnlyRows(n, 0)) return RowValue::Unknown(kNotSeen);
  const int axis = IntAttr(n, "axis", -1), rows = n.inputs[0].axis;
  return RowValue::Rows(rows + (axis >= 0 && axis <= rows ? 1 : 0));
}

RowValue IdentityN(const RowNode& n) {
  const std::optional<int> axis = CommonAxis(n, 0, n.size());
  return axis.has_value() ? RowValue::Rows(*axis) : RowValue::Unknown(kNotSeen);
}

// Handles fused ops, which take weights, and tensors whose first dimension is the rows.
RowValue Fused(const RowNode& n) {
  for (int i = 0; i < n.size(); ++i) {
    if (n.IsFree(i)) continue;
    if (!n.IsRows(i) || n.inputs[i].axis != 0) return RowValue::Unknown(kNotSeen);
  }
  return RowValue::Rows(0);
}

// Handles features with one entry per row; other layouts have one entry per value.
RowValue Lookups(const RowNode& n) {
  std::string plan;
  (void)tensorflow::GetNodeAttr(n.node.attrs(), "plan", &plan);
  const nlohmann::json parsed = nlohmann::json::parse(plan, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object() || !parsed.contains("keys")) return RowValue::Unknown(kNotSeen);
  for (const nlohmann::json& key : parsed["keys"]) {
    if (key.value("layout", "dense") != "dense") return RowValue::Unknown("takes features that are no dense tensors");
  }
  return Fused(n);
}

RowValue FusedTower(const RowNode& n) {
  for (int i = 0; i < n.size(); ++i) {
    if (n.IsRows(i) && n.rank(i) == 1) return RowValue::Unknown(kNotSeen);
  }
  return Fused(n);
}

using Rules = std::map<std::string, RowRule>;

void AddRule(Rules* rules, RowRule rule, std::initializer_list<const char*> ops) {
  for (const char* op : ops) (*rules)[op] = rule;
}

// Ops that compute each element of the output from the element at the same position of their first input.
void AddElementwiseOfOne(Rules* rules) {
  AddRule(rules, First,
          {"Abs", "Cast", "Ceil", "CheckNumerics", "Floor", "Inv", "Invert", "IsFinite", "IsInf", "IsNan", "LogicalNot",
           "Neg", "OnesLike", "Reciprocal", "Rint", "Round", "Sign", "ZerosLike"});
  AddRule(rules, First, {"Acos", "Acosh", "Asin", "Asinh", "Atan", "Atanh", "Cos", "Cosh", "Sin", "Sinh", "Tan"});
  AddRule(rules, First,
          {"Digamma", "Erf", "Erfc", "Erfinv", "Exp", "Expm1", "Lgamma", "Log", "Log1p", "Rsqrt", "Sqrt", "Square"});
  AddRule(rules, First, {"Elu", "LeakyRelu", "Relu", "Relu6", "Selu", "Sigmoid", "Softplus", "Softsign", "Tanh"});
  AddRule(rules, First, {"Bucketize", "EnsureShape", "Identity", "PreventGradient", "Snapshot", "StopGradient"});
  AddRule(rules, First,
          {"AsString", "DecodeBase64", "EncodeBase64", "RegexFullMatch", "RegexReplace", "StaticRegexFullMatch",
           "StaticRegexReplace", "StringLength", "StringLower", "StringStrip", "StringToHashBucket",
           "StringToHashBucketFast", "StringToHashBucketStrong", "StringToNumber", "StringUpper", "Substr"});
}

// Ops that compute each element from the elements at the same position of all inputs, which are broadcast.
void AddElementwiseOfSeveral(Rules* rules) {
  AddRule(rules, Elementwise,
          {"Add",         "AddV2",        "Atan2",       "BitwiseAnd",  "BitwiseOr", "BitwiseXor",
           "ClipByValue", "Div",          "DivNoNan",    "Equal",       "FloorDiv",  "FloorMod",
           "Greater",     "GreaterEqual", "LeftShift",   "Less",        "LessEqual", "LogicalAnd",
           "LogicalOr",   "Maximum",      "Minimum",     "Mod",         "Mul",       "MulNoNan",
           "NotEqual",    "Pow",          "RealDiv",     "RightShift",  "SelectV2",  "SquaredDifference",
           "StringJoin",  "Sub",          "TruncateDiv", "TruncateMod", "Xdivy",     "Xlog1py",
           "Xlogy"});
  (*rules)["AddN"] = AddN;
  (*rules)["Select"] = Select;
}

void AddReductions(Rules* rules) {
  AddRule(rules, Reduce, {"All", "Any", "EuclideanNorm", "Max", "Mean", "Min", "Prod", "Sum", "ReduceJoin"});
  AddRule(rules, Along, {"Cumsum", "Cumprod", "CumulativeLogsumexp", "ReverseV2"});
  AddRule(rules, ArgMax, {"ArgMax", "ArgMin"});
  AddRule(rules, LastAxis, {"LogSoftmax", "Softmax", "TopKV2", "TopK"});
  (*rules)["L2Loss"] = [](const RowNode&) { return RowValue::Mixed("reduces over rows"); };
}

void AddLayers(Rules* rules) {
  AddRule(rules, FirstOfAxisZero, {"AvgPool", "Conv2D", "Conv3D", "DepthwiseConv2dNative", "MaxPool"});
  AddRule(rules, BatchNorm, {"FusedBatchNorm", "FusedBatchNormV2", "FusedBatchNormV3"});
  AddRule(rules, LookUp, {"LookupTableFind", "LookupTableFindV2"});
  (*rules)["BiasAdd"] = BiasAdd;
  (*rules)["OneHot"] = OneHot;
}

void AddJoinsAndSplits(Rules* rules) {
  (*rules)["ConcatV2"] = Concat;
  (*rules)["ExpandDims"] = ExpandDims;
  (*rules)["IdentityN"] = IdentityN;
  (*rules)["Pack"] = Pack;
  (*rules)["Split"] = Split;
  (*rules)["SplitV"] = SplitV;
  (*rules)["Squeeze"] = Squeeze;
  (*rules)["Unpack"] = Unpack;
}

void AddFusedOps(Rules* rules) {
  AddRule(
      rules, Fused,
      {"RecCrossNetwork", "RecDotInteraction", "RecFieldOuter", "RecFmInteraction", "RecHeadAttention", "RecProduct",
       "RecRecurrentLayer", "RecSequencePooling", "RecTargetAttention", "RecCollapseRows", "RecExpandRows"});
  (*rules)["RecDenseTower"] = FusedTower;
  (*rules)["RecEmbeddingGroup"] = Lookups;
}

Rules MakeRules() {
  Rules rules = ShapedRules();
  AddElementwiseOfOne(&rules);
  AddElementwiseOfSeveral(&rules);
  AddReductions(&rules);
  AddLayers(&rules);
  AddJoinsAndSplits(&rules);
  AddFusedOps(&rules);
  return rules;
}

}  // namespace
}  // namespace row_rules

RowRule FindRowRule(const std::string& op) {
  static const auto* const rules = new std::map<std::string, RowRule>(row_rules::MakeRules());
  const auto found = rules->find(op);
  return found == rules->end() ? nullptr : found->second;
}

}  // namespace processor
