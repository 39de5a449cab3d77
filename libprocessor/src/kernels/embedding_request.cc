// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/embedding_request.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "tensorflow/core/framework/types.h"

namespace processor {
namespace {

using tensorflow::DataType;

template <typename... Found>
absl::Status WrongFeature(int feature, const Found&... found) {
  return absl::InvalidArgumentError(absl::StrCat("embedding group: feature ", feature, ": ", found...));
}

bool IsIndex(DataType type) { return type == tensorflow::DT_INT32 || type == tensorflow::DT_INT64; }

bool IsNumber(DataType type) {
  switch (type) {
    case tensorflow::DT_FLOAT:
    case tensorflow::DT_DOUBLE:
    case tensorflow::DT_INT8:
    case tensorflow::DT_INT16:
    case tensorflow::DT_INT32:
    case tensorflow::DT_INT64:
    case tensorflow::DT_UINT8:
    case tensorflow::DT_UINT16:
    case tensorflow::DT_UINT32:
    case tensorflow::DT_UINT64:
    case tensorflow::DT_BOOL:
      return true;
    default:
      return false;
  }
}

// The number of rows that the features agree on.
class Batch {
 public:
  /// More than `max_rows` are a mistake or an attack: a sparse feature can name any number.
  explicit Batch(int64_t max_rows) : max_rows_(max_rows) {}

  absl::Status Set(int64_t rows, int feature) {
    if (feature_ >= 0 && rows == rows_) return absl::OkStatus();
    if (feature_ >= 0) return WrongFeature(feature, rows, " rows, expected ", rows_, " as feature ", feature_, " has");
    if (rows < 0 || rows > max_rows_)
      return WrongFeature(feature, rows, " rows, expected 0 to ", max_rows_, " (max_rows)");
    rows_ = rows;
    feature_ = feature;
    return absl::OkStatus();
  }
  int64_t rows() const { return rows_; }

 private:
  const int64_t max_rows_;
  int64_t rows_ = -1;
  int feature_ = -1;
};

absl::Status SetDense(const EmbeddingRequest& request, int feature, Batch* batch) {
  const FeatureView& view = request.features[feature];
  if (view.rank < 1) return WrongFeature(feature, "a scalar, expected shape [batch, ...]");
  return batch->Set(view.rows, feature);
}

// The rows that a feature says the batch has, for keys that are not dense.
absl::Status SetExtent(const EmbeddingRequest& request, const PlanKey& key, Batch* batch) {
  const FeatureView& view = request.features[key.layout == KeyLayout::kRagged ? key.structure : key.extent];
  switch (key.layout) {
    case KeyLayout::kSparse:
      if (view.elements != 2)
        return WrongFeature(key.extent, view.elements, " elements, expected the shape [batch, columns]");
      return batch->Set(static_cast<const int64_t*>(view.data)[0], key.extent);
    case KeyLayout::kRagged:
      if (view.elements < 1) return WrongFeature(key.structure, "no elements, expected row splits [batch + 1]");
      return batch->Set(view.elements - 1, key.structure);
    default:
      if (view.elements != 1) return WrongFeature(key.extent, view.elements, " elements, expected the number of rows");
      return batch->Set(view.type == tensorflow::DT_INT32 ? static_cast<const int32_t*>(view.data)[0]
                                                          : static_cast<const int64_t*>(view.data)[0],
                        key.extent);
  }
}

// The number of values before each row, from the row of each value: rows[i * step].
template <typename T>
absl::Status SplitByRows(const T* rows, int64_t step, int64_t count, int64_t batch, int feature, int64_t* splits) {
  int64_t row = 0;
  splits[0] = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t next = static_cast<int64_t>(rows[i * step]);
    if (next < 0 || next >= batch) {
      return WrongFeature(feature, "row ", next, " at position ", i, ", expected 0 to ", batch - 1);
    }
    if (next < row)
      return WrongFeature(feature, "row ", next, " at position ", i, " after row ", row, ", expected order");
    for (; row < next; ++row) splits[row + 1] = i;
  }
  for (; row < batch; ++row) splits[row + 1] = count;
  return absl::OkStatus();
}

template <typename T>
absl::Status CheckSplits(const T* src, int64_t batch, int64_t count, int feature, int64_t* splits) {
  int64_t before = 0;
  for (int64_t row = 0; row <= batch; ++row) {
    const int64_t split = static_cast<int64_t>(src[row]);
    if (split < before || split > count || (row == 0 && split != 0)) {
      return WrongFeature(feature, "row split ", split, " at position ", row, ", expected them from 0 to ", count,
                          " in order");
    }
    before = split;
    splits[row] = split;
  }
  if (before != count) return WrongFeature(feature, "row splits end at ", before, ", expected ", count, ", the values");
  return absl::OkStatus();
}

absl::Status Split(const EmbeddingRequest& request, const PlanKey& key, int64_t count, std::vector<int64_t>* splits) {
  const FeatureView& view = request.features[key.structure];
  splits->resize(request.batch + 1);
  const bool narrow = view.type == tensorflow::DT_INT32;
  if (key.layout == KeyLayout::kRagged) {
    return narrow ? CheckSplits(static_cast<const int32_t*>(view.data), request.batch, count, key.structure,
                                splits->data())
                  : CheckSplits(static_cast<const int64_t*>(view.data), request.batch, count, key.structure,
                                splits->data());
  }
  const int64_t step = key.layout == KeyLayout::kSparse ? 2 : 1;
  if (view.elements != count * step || (step == 2 && (view.rank != 2 || view.second != 2))) {
    return WrongFeature(key.structure, view.elements, " elements, expected ", step == 2 ? "[n, 2]" : "[n]", " for the ",
                        count, " values of feature ", key.feature);
  }
  return narrow ? SplitByRows(static_cast<const int32_t*>(view.data), step, count, request.batch, key.structure,
                              splits->data())
                : SplitByRows(static_cast<const int64_t*>(view.data), step, count, request.batch, key.structure,
                              splits->data());
}

absl::Status CheckType(bool fits, int feature, DataType type, std::string_view expected) {
  if (fits) return absl::OkStatus();
  return WrongFeature(feature, tensorflow::DataTypeString(type), ", expected ", expected);
}

absl::Status CheckColumn(const EmbeddingPlan& plan, const PlanColumn& column, const EmbeddingRequest& request) {
  if (column.kind == ColumnKind::kLookup) {
    const KeyValues& key = request.keys[column.key];
    const PlanOutput& output = plan.outputs[column.output];
    if (output.sequence >= 0 &&
        (key.per_row != request.Repeats(output) || request.lengths[column.key] != key.per_row)) {
      return WrongFeature(plan.keys[column.key].feature, key.per_row, " values a row, expected [batch, ",
                          request.Repeats(output), "] as feature ", plan.keys[output.sequence].feature, " has");
    }
    for (const PlanFactor& factor : column.factors) {
      if (request.keys[factor.key].per_row == key.per_row && request.keys[factor.key].count == key.count) continue;
      return WrongFeature(plan.keys[factor.key].feature, request.keys[factor.key].count, " values, expected ",
                          key.count, " as feature ", plan.keys[column.key].feature, " has, to multiply their rows");
    }
    if (column.weights < 0) return absl::OkStatus();
    const FeatureView& weights = request.features[column.weights];
    if (weights.elements != key.count || (key.splits == nullptr && weights.rows != request.batch)) {
      return WrongFeature(column.weights, weights.elements, " weights, expected ", key.count, " as feature ",
                          plan.keys[column.key].feature, " has values");
    }
    return absl::OkStatus();
  }
  const int64_t per_row =
      column.kind == ColumnKind::kCopy ? column.width : static_cast<int64_t>(column.matrix.size()) / column.width;
  const FeatureView& view = request.features[column.feature];
  if (view.per_row == per_row) return absl::OkStatus();
  return WrongFeature(column.feature, view.per_row, " elements a row, expected ", per_row);
}

}  // namespace

absl::Status CheckFeatureTypes(const EmbeddingPlan& plan, absl::Span<const DataType> types) {
  for (const PlanKey& key : plan.keys) {
    if (key.layout == KeyLayout::kDense) continue;
    const bool sparse = key.layout == KeyLayout::kSparse;
    absl::Status checked =
        CheckType(sparse ? types[key.structure] == tensorflow::DT_INT64 : IsIndex(types[key.structure]), key.structure,
                  types[key.structure], sparse ? "int64" : "int32 or int64");
    if (checked.ok() && key.extent >= 0) {
      checked = CheckType(sparse ? types[key.extent] == tensorflow::DT_INT64 : IsIndex(types[key.extent]), key.extent,
                          types[key.extent], sparse ? "int64" : "int32 or int64");
    }
    if (!checked.ok()) return checked;
  }
  for (const PlanColumn& column : plan.columns) {
    absl::Status checked;
    if (column.kind == ColumnKind::kCopy) {
      checked = CheckType(IsNumber(types[column.feature]), column.feature, types[column.feature], "a number");
    } else if (const int feature = column.kind == ColumnKind::kLinear ? column.feature : column.weights; feature >= 0) {
      checked = CheckType(types[feature] == tensorflow::DT_FLOAT, feature, types[feature], "float");
    }
    if (!checked.ok()) return checked;
  }
  return absl::OkStatus();
}

absl::Status LayOutRequest(const EmbeddingPlan& plan, const std::function<absl::Status(int64_t)>& reserve,
                           EmbeddingRequest* request) {
  Batch batch(request->max_rows);
  for (const PlanKey& key : plan.keys) {
    absl::Status set =
        key.layout == KeyLayout::kDense ? SetDense(*request, key.feature, &batch) : SetExtent(*request, key, &batch);
    if (!set.ok()) return set;
  }
  for (const PlanColumn& column : plan.columns) {
    if (column.kind == ColumnKind::kLookup) continue;
    if (absl::Status set = SetDense(*request, column.feature, &batch); !set.ok()) return set;
  }
  if (batch.rows() < 0) return absl::InvalidArgumentError("embedding group: no key and no column, expected one");
  request->batch = batch.rows();

  const size_t keys = plan.keys.size();
  const auto split = std::count_if(plan.keys.begin(), plan.keys.end(),
                                   [](const PlanKey& key) { return key.layout != KeyLayout::kDense; });
  absl::Status reserved = reserve(split * (request->batch + 1) * static_cast<int64_t>(sizeof(int64_t)));
  if (!reserved.ok()) return reserved;
  request->keys.resize(keys);
  request->splits.resize(keys);
  request->lengths.resize(keys);
  for (size_t k = 0; k < keys; ++k) {
    const PlanKey& key = plan.keys[k];
    const FeatureView& view = request->features[key.feature];
    request->keys[k] = {view.data, view.elements, view.per_row, nullptr};
    request->lengths[k] = view.rank >= 2 ? view.second : 1;
    if (key.layout == KeyLayout::kDense) continue;
    if (absl::Status split = Split(*request, key, view.elements, &request->splits[k]); !split.ok()) return split;
    request->keys[k].per_row = -1;
    request->keys[k].splits = request->splits[k].data();
  }
  for (const PlanOutput& output : plan.outputs) {
    if (output.sequence < 0) continue;
    const int feature = plan.keys[output.sequence].feature;
    if (request->features[feature].rank < 2) return WrongFeature(feature, "one dimension, expected [batch, T]");
  }
  for (const PlanColumn& column : plan.columns) {
    if (absl::Status checked = CheckColumn(plan, column, *request); !checked.ok()) return checked;
  }
  return absl::OkStatus();
}

}  // namespace processor
