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
constexpr size_t kMaxFloats = size_t{1} << 24;

class EmbeddingPlanReader {
 public:
  EmbeddingPlanReader(int features, int tables, EmbeddingPlan* plan)
      : features_(features), tables_(tables), plan_(plan) {}

  absl::Status Read(std::string_view text, int outputs);

 private:
  static std::string Where(std::string_view what, size_t number) {
    return absl::StrCat("embedding plan: ", what, " ", number);
  }
  int Feature(JsonFields* fields, const char* field) { return static_cast<int>(fields->Int(field, 0, features_ - 1)); }
  void ReadOutput(JsonFields fields, size_t keys);
  void ReadKey(JsonFields fields, size_t number);
  void ReadStep(JsonFields fields, bool first, PlanStep* step);
  void ReadColumn(JsonFields fields);
  void ReadLookup(JsonFields* fields, PlanColumn* column);
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
      fields.Refuse(absl::StrCat(output.initial.size(), " initial values"), absl::StrCat(output.width));
    }
  }
  output.sequence = static_cast<int>(fields.Int("sequence", 0, static_cast<int64_t>(keys) - 1, -1));
  fields.Finish();
  plan_->outputs.push_back(std::move(output));
}

void EmbeddingPlanReader::ReadKey(JsonFields fields, size_t number) {
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
  if (const nlohmann::json* ignore = fields.Find("ignore"); ignore != nullptr) {
    key.ignore = ignore->is_string() ? IgnoreKind::kString : IgnoreKind::kInteger;
    if (ignore->is_string()) {
      key.ignored_string = ignore->get<std::string>();
    } else {
      key.ignored_integer = fields.Int("ignore", INT64_MIN, INT64_MAX);
    }
  }
  key.ignore_negative = fields.Bool("ignore_negative", false);
  if (fields.Has("steps")) {
    for (const nlohmann::json& value : fields.Array("steps", kMaxSteps)) {
      const std::string where = absl::StrCat(Where("key", number), ": step ", key.steps.size());
      PlanStep step{};
      ReadStep(JsonFields(value, where, &status_), key.steps.empty(), &step);
      key.steps.push_back(std::move(step));
    }
  }
  fields.Finish();
  plan_->keys.push_back(std::move(key));
}

void EmbeddingPlanReader::ReadStep(JsonFields fields, bool first, PlanStep* step) {
  step->kind = static_cast<StepKind>(fields.Choice("op", {"fast_hash", "strong_hash", "legacy_hash", "to_string", "mod",
                                                          "add", "multiply", "clip", "bucketize", "wrap_negative"}));
  switch (step->kind) {
    case StepKind::kStrongHash: {
      const nlohmann::json& key = fields.Array("key", 2);
      if (key.size() != 2) fields.RefuseField("key", "two numbers");
      for (size_t i = 0; i < key.size(); ++i) {
        // An attribute of the op has it signed, a reader may write it unsigned.
        step->key[i] = key[i].is_number_unsigned()
                           ? key[i].get<uint64_t>()
                           : static_cast<uint64_t>(JsonInt(key[i], INT64_MIN, -1, "key", &fields));
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
      if (step->first == 0) fields.RefuseField("by", "a number other than 0");
      break;
    case StepKind::kAdd:
    case StepKind::kMultiply:
      step->first = fields.Int("value", INT64_MIN, INT64_MAX);
      break;
    case StepKind::kClip:
      step->first = fields.Int("low", INT64_MIN, INT64_MAX);
      step->second = fields.Int("high", INT64_MIN, INT64_MAX);
      if (step->first > step->second) fields.RefuseField("low", "at most 'high'");
      break;
    case StepKind::kWrapNegative:
      step->first = fields.Int("by", 1, INT64_MAX);
      break;
    case StepKind::kBucketize:
      step->boundaries = fields.Floats("boundaries", kMaxFloats);
      if (!std::is_sorted(step->boundaries.begin(), step->boundaries.end())) {
        fields.RefuseField("boundaries", "ascending ones");
      }
      if (!first) fields.Refuse("bucketize after another step", "it first");
      break;
  }
  fields.Finish();
}

void EmbeddingPlanReader::ReadLookup(JsonFields* fields, PlanColumn* column) {
  column->key = static_cast<int>(fields->Int("key", 0, static_cast<int64_t>(plan_->keys.size()) - 1));
  column->table = static_cast<int>(fields->Int("table", 0, tables_ - 1));
  if (fields->Has("combiner")) {
    column->combiner = static_cast<Combiner>(1 + fields->Choice("combiner", {"sum", "mean", "sqrtn"}));
  }
  if (fields->Has("weights")) column->weights = Feature(fields, "weights");
  column->positive_weights = fields->Bool("positive_weights", false);
  if (column->positive_weights && column->weights < 0) fields->RefuseField("positive_weights", "it with 'weights'");
  if (const nlohmann::json* empty = fields->Find("empty"); empty != nullptr) {
    column->has_empty = true;
    column->empty_is_string = empty->is_string();
    if (empty->is_string()) {
      column->empty_string = empty->get<std::string>();
    } else {
      column->empty_integer = fields->Int("empty", INT64_MIN, INT64_MAX);
    }
  }
  if (!status_.ok()) return;
  const bool sequence = plan_->outputs[column->output].sequence >= 0;
  if (column->combiner != Combiner::kNone) {
    if (sequence) fields->Refuse("a combiner into a sequence output", "none");
    return;
  }
  if (column->weights >= 0) fields->RefuseField("weights", "them with a combiner");
  if (column->has_empty) fields->RefuseField("empty", "it with a combiner");
  if (plan_->keys[column->key].layout != KeyLayout::kDense) {
    fields->Refuse(absl::StrCat("no combiner for key ", column->key, ", which is not dense"), "one");
  }
}

void EmbeddingPlanReader::ReadLinear(JsonFields* fields, PlanColumn* column) {
  column->feature = Feature(fields, "feature");
  for (const nlohmann::json& row : fields->Array("weights", kMaxFloats)) {
    if (!row.is_array() || row.empty() || (column->width > 0 && row.size() != column->width)) {
      fields->RefuseField("weights", "rows of equal lengths");
      return;
    }
    column->width = static_cast<int64_t>(row.size());
    for (const nlohmann::json& value : row) column->matrix.push_back(JsonFloat(value, "weight", fields));
  }
  if (column->width == 0) fields->RefuseField("weights", "at least one row");
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
  JsonFields fields(object, "embedding plan", &status_);
  fields.Int("version", 1, 1);
  const nlohmann::json& all_outputs = fields.Array("outputs", kMaxColumns);
  const nlohmann::json& all_keys = fields.Array("keys", kMaxKeys);
  const nlohmann::json& all_columns = fields.Array("columns", kMaxColumns);
  if (all_outputs.size() != outputs) {
    fields.Refuse(absl::StrCat(all_outputs.size(), " outputs"), absl::StrCat(outputs, ", as the op has"));
  }
  fields.Finish();
  // The first fault ends the reading: what follows may refer to what is not there.
  for (size_t i = 0; i < all_outputs.size() && status_.ok(); ++i) {
    ReadOutput(JsonFields(all_outputs[i], Where("output", i), &status_), all_keys.size());
  }
  for (size_t i = 0; i < all_keys.size() && status_.ok(); ++i) {
    ReadKey(JsonFields(all_keys[i], Where("key", i), &status_), i);
  }
  for (size_t i = 0; i < plan_->outputs.size() && status_.ok(); ++i) {
    const int sequence = plan_->outputs[i].sequence;
    if (sequence >= 0 && plan_->keys[sequence].layout != KeyLayout::kDense) {
      status_ = absl::InvalidArgumentError(absl::StrCat(Where("output", i), ": sequence of key ", sequence,
                                                        ", which is not dense, expected a dense one"));
    }
  }
  for (size_t i = 0; i < all_columns.size() && status_.ok(); ++i) {
    ReadColumn(JsonFields(all_columns[i], Where("column", i), &status_));
  }
  return status_;
}

}  // namespace

absl::Status ParseEmbeddingPlan(std::string_view text, int features, int tables, int outputs, EmbeddingPlan* plan) {
  *plan = EmbeddingPlan();
  return EmbeddingPlanReader(features, tables, plan).Read(text, outputs);
}

}  // namespace processor
