// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/embedding_plan.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "src/kernels/json_fields.h"

namespace processor {
namespace {

constexpr int64_t kMaxWidth = int64_t{1} << 24;
constexpr size_t kMaxKeys = 1 << 16;
constexpr size_t kMaxColumns = 1 << 16;
constexpr size_t kMaxSteps = 32;
constexpr size_t kMaxFactors = 64;
constexpr size_t kMaxFloats = size_t{1} << 24;

class EmbeddingPlanReader {
 public:
  EmbeddingPlanReader(int features, int tables, EmbeddingPlan* plan)
      : features_(features), tables_(tables), plan_(plan) {}

  absl::Status Read(std::string_view text, int outputs);

 private:
  int Feature(JsonFields* fields, const char* field) { return static_cast<int>(fields->Int(field, 0, features_ - 1)); }
  void ReadOutput(JsonFields fields, size_t keys);
  void ReadKey(JsonFields fields);
  void ReadStep(JsonFields fields, bool first, PlanStep* step);
  void ReadColumn(JsonFields fields);
  int Key(JsonFields* fields) {
    return static_cast<int>(fields->Int("key", 0, static_cast<int64_t>(plan_->keys.size()) - 1));
  }
  int Table(JsonFields* fields) { return static_cast<int>(fields->Int("table", 0, tables_ - 1)); }
  void ReadLookup(JsonFields* fields, PlanColumn* column);
  void ReadFactors(JsonFields* fields, PlanColumn* column);
  void ReadLinear(JsonFields* fields, PlanColumn* column);

  const int features_;
  const int tables_;
  EmbeddingPlan* const plan_;
  absl::Status status_;
};

void EmbeddingPlanReader::ReadOutput(JsonFields fields, size_t keys) {
  PlanOutput output;
  output.width = fields.Int("width", 1, kMaxWidth);
  if (fields.Has("initial")) {
    output.initial = fields.Floats("initial", kMaxFloats);
    if (output.initial.size() != output.width) {
      fields.Field("initial").Fault(absl::StrCat(output.initial.size(), " numbers, expected ", output.width));
    }
  }
  output.sequence = static_cast<int>(fields.Int("sequence", 0, static_cast<int64_t>(keys) - 1, -1));
  fields.Finish();
  plan_->outputs.push_back(std::move(output));
}

void EmbeddingPlanReader::ReadKey(JsonFields fields) {
  PlanKey key;
  key.feature = Feature(&fields, "feature");
  key.layout = static_cast<KeyLayout>(fields.Choice("layout", {"dense", "sparse", "ragged", "segments"}, 0));
  switch (key.layout) {
    case KeyLayout::kDense:
      break;
    case KeyLayout::kSparse:
      key.structure = Feature(&fields, "indices");
      key.extent = Feature(&fields, "shape");
      break;
    case KeyLayout::kRagged:
      key.structure = Feature(&fields, "row_splits");
      break;
    case KeyLayout::kSegments:
      key.structure = Feature(&fields, "segment_ids");
      key.extent = Feature(&fields, "rows");
      break;
  }
  if (const JsonValue ignore = fields.Field("ignore"); ignore.present()) {
    key.ignore = ignore.json().is_string() ? IgnoreKind::kString : IgnoreKind::kInteger;
    if (ignore.json().is_string()) {
      key.ignored_string = ignore.json().get<std::string>();
    } else {
      key.ignored_integer = fields.Int("ignore", INT64_MIN, INT64_MAX);
    }
  }
  key.ignore_negative = fields.Bool("ignore_negative", false);
  if (fields.Has("steps")) {
    const JsonValue steps = fields.List("steps", kMaxSteps);
    for (size_t i = 0; i < steps.size(); ++i) {
      PlanStep step{};
      ReadStep(JsonFields(steps.Item(i)), /*first=*/i == 0, &step);
      key.steps.push_back(std::move(step));
    }
  }
  fields.Finish();
  plan_->keys.push_back(std::move(key));
}

void EmbeddingPlanReader::ReadStep(JsonFields fields, bool first, PlanStep* step) {
  step->kind = static_cast<StepKind>(
      fields.Choice("op", {"fast_hash", "strong_hash", "legacy_hash", "to_string", "mod", "add", "multiply", "clip",
                           "bucketize", "wrap_negative", "divide", "xor_shift", "bits"}));
  switch (step->kind) {
    case StepKind::kStrongHash: {
      const JsonValue key = fields.List("key", 2);
      if (key.size() != 2) key.Refuse("two numbers");
      for (size_t i = 0; i < key.size(); ++i) {
        // The attribute of the op is signed, but a plan may have the number unsigned.
        const JsonValue half = key.Item(i);
        step->key[i] = half.json().is_number_unsigned() ? half.json().get<uint64_t>()
                                                        : static_cast<uint64_t>(IntItem(half, INT64_MIN, -1));
      }
      step->first = fields.Int("buckets", 1, INT64_MAX);
      break;
    }
    case StepKind::kFastHash:
    case StepKind::kLegacyHash:
      step->first = fields.Int("buckets", 1, INT64_MAX);
      break;
    case StepKind::kToString:
      break;
    case StepKind::kMod:
      step->first = fields.Int("by", INT64_MIN, INT64_MAX);
      if (step->first == 0) fields.Field("by").Refuse("a number other than 0");
      break;
    case StepKind::kAdd:
    case StepKind::kMultiply:
      step->first = fields.Int("value", INT64_MIN, INT64_MAX);
      break;
    case StepKind::kClip:
      step->first = fields.Int("low", INT64_MIN, INT64_MAX);
      step->second = fields.Int("high", INT64_MIN, INT64_MAX);
      if (step->first > step->second) fields.Field("low").Refuse("at most 'high'");
      break;
    case StepKind::kWrapNegative:
    case StepKind::kDivide:
      step->first = fields.Int("by", 1, INT64_MAX);
      break;
    case StepKind::kXorShift:
      step->first = fields.Int("by", 1, 63);
      break;
    case StepKind::kBits:
      step->first = fields.Int("first", 0, 63);
      step->second = fields.Int("count", 1, 63);
      if (fields.Has("every")) step->third = fields.Int("every", 1, 63);
      if (step->first + (step->second - 1) * step->third > 63) fields.Field("count").Refuse("no bit beyond the 64th");
      break;
    case StepKind::kBucketize:
      step->boundaries = fields.Floats("boundaries", kMaxFloats);
      if (!std::is_sorted(step->boundaries.begin(), step->boundaries.end())) {
        fields.Field("boundaries").Refuse("ascending numbers");
      }
      if (!first) fields.Refuse("bucketize after another step", "it as the first step");
      break;
  }
  fields.Finish();
}

void EmbeddingPlanReader::ReadLookup(JsonFields* fields, PlanColumn* column) {
  column->key = Key(fields);
  column->table = Table(fields);
  if (fields->Has("combiner")) {
    column->combiner = static_cast<Combiner>(1 + fields->Choice("combiner", {"sum", "mean", "sqrtn"}));
  }
  if (fields->Has("weights")) column->weights = Feature(fields, "weights");
  column->positive_weights = fields->Bool("positive_weights", false);
  if (column->positive_weights && column->weights < 0)
    fields->Field("positive_weights").Refuse("true only with 'weights'");
  if (const JsonValue empty = fields->Field("empty"); empty.present()) {
    column->has_empty = true;
    column->empty_is_string = empty.json().is_string();
    if (column->empty_is_string) {
      column->empty_string = empty.json().get<std::string>();
    } else {
      column->empty_integer = fields->Int("empty", INT64_MIN, INT64_MAX);
    }
  }
  if (!status_.ok()) return;
  if (fields->Has("factors")) ReadFactors(fields, column);
  if (!status_.ok()) return;
  const bool sequence = plan_->outputs[column->output].sequence >= 0;
  if (column->combiner != Combiner::kNone) {
    if (sequence) fields->Refuse("a combiner into a sequence output", "no combiner");
    return;
  }
  if (column->weights >= 0) fields->Field("weights").Refuse("weights only with a combiner");
  if (column->has_empty) fields->Field("empty").Refuse("a key only with a combiner");
  if (plan_->keys[column->key].layout != KeyLayout::kDense) {
    fields->Refuse(absl::StrCat("no combiner for key ", column->key, ", which is not dense"), "a combiner");
  }
}

void EmbeddingPlanReader::ReadFactors(JsonFields* fields, PlanColumn* column) {
  const JsonValue factors = fields->List("factors", kMaxFactors);
  const PlanKey& key = plan_->keys[column->key];
  for (size_t i = 0; i < factors.size(); ++i) {
    JsonFields factor(factors.Item(i));
    column->factors.push_back({Key(&factor), Table(&factor)});
    factor.Finish();
    if (!status_.ok()) return;
    const PlanKey& other = plan_->keys[column->factors.back().key];
    if (other.layout != key.layout || other.structure != key.structure || other.extent != key.extent) {
      return factor.Refuse(absl::StrCat("key ", column->factors.back().key, ", whose values have another form"),
                           absl::StrCat("one of the form of key ", column->key));
    }
  }
  if (column->has_empty) fields->Field("empty").Refuse("a key only without 'factors'");
}

void EmbeddingPlanReader::ReadLinear(JsonFields* fields, PlanColumn* column) {
  column->feature = Feature(fields, "feature");
  const JsonValue rows = fields->List("weights", kMaxFloats);
  for (size_t i = 0; i < rows.size(); ++i) {
    const JsonValue row = rows.Item(i);
    if (row.size() == 0 || (column->width > 0 && row.size() != column->width)) {
      return row.Refuse("a non-empty list as long as the first row");
    }
    column->width = static_cast<int64_t>(row.size());
    AppendFloats(row, &column->matrix);
  }
  if (column->width == 0) rows.Refuse("at least one row");
}

void EmbeddingPlanReader::ReadColumn(JsonFields fields) {
  PlanColumn column;
  column.kind = static_cast<ColumnKind>(fields.Choice("kind", {"lookup", "copy", "linear"}));
  column.output = static_cast<int>(fields.Int("output", 0, static_cast<int64_t>(plan_->outputs.size()) - 1));
  column.accumulate = fields.Bool("accumulate", false);
  const int64_t output_width = status_.ok() ? plan_->outputs[column.output].width : 1;
  column.offset = fields.Int("offset", 0, output_width - 1);
  switch (column.kind) {
    case ColumnKind::kLookup:
      ReadLookup(&fields, &column);
      break;
    case ColumnKind::kCopy:
      column.feature = Feature(&fields, "feature");
      column.width = fields.Int("width", 1, kMaxWidth);
      break;
    case ColumnKind::kLinear:
      ReadLinear(&fields, &column);
      break;
  }
  if (status_.ok() && column.kind != ColumnKind::kLookup) {
    if (plan_->outputs[column.output].sequence >= 0) fields.Refuse("not a lookup into a sequence output", "a lookup");
    if (column.offset + column.width > output_width) {
      fields.Refuse(absl::StrCat("columns up to ", column.offset + column.width),
                    absl::StrCat("none beyond ", output_width));
    }
  }
  fields.Finish();
  plan_->columns.push_back(std::move(column));
}

absl::Status EmbeddingPlanReader::Read(std::string_view text, int outputs) {
  nlohmann::json object;
  if (absl::Status parsed = ParsePlan(text, "embedding plan", &object); !parsed.ok()) return parsed;
  JsonFields fields(JsonValue("embedding plan: ", object, &status_));
  fields.Int("version", 1, 1);
  const JsonValue all_outputs = fields.List("outputs", kMaxColumns);
  const JsonValue all_keys = fields.List("keys", kMaxKeys);
  const JsonValue all_columns = fields.List("columns", kMaxColumns);
  if (all_outputs.size() != outputs) {
    all_outputs.Fault(absl::StrCat(all_outputs.size(), " outputs, expected ", outputs, ", as the op has"));
  }
  fields.Finish();
  // The first fault ends the reading, because later parts may refer to what is missing: size() is 0 then.
  for (size_t i = 0; i < all_outputs.size(); ++i) ReadOutput(JsonFields(all_outputs.Item(i)), all_keys.size());
  for (size_t i = 0; i < all_keys.size(); ++i) ReadKey(JsonFields(all_keys.Item(i)));
  for (size_t i = 0; i < all_outputs.size(); ++i) {
    const int sequence = plan_->outputs[i].sequence;
    if (sequence >= 0 && plan_->keys[sequence].layout != KeyLayout::kDense) {
      all_outputs.Item(i).Fault(
          absl::StrCat("sequence of key ", sequence, ", which is not dense, expected a dense one"));
    }
  }
  for (size_t i = 0; i < all_columns.size(); ++i) ReadColumn(JsonFields(all_columns.Item(i)));
  return status_;
}

}  // namespace

absl::Status ParseEmbeddingPlan(std::string_view text, int features, int tables, int outputs, EmbeddingPlan* plan) {
  *plan = EmbeddingPlan();
  return EmbeddingPlanReader(features, tables, plan).Read(text, outputs);
}

}  // namespace processor
