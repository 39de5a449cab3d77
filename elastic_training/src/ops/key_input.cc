// SPDX-License-Identifier: Apache-2.0
#include "src/ops/key_input.h"

#include <limits>

#include "external/farmhash_archive/src/farmhash.h"
#include "src/ops/table_resource.h"

namespace elastic_training {

using tensorflow::Tensor;

uint64_t FingerprintOf(std::string_view text) { return ::util::Fingerprint64(text.data(), text.size()); }

absl::Status KeyInput::Read(const ElasticTable& table, const Tensor& tensor, bool mask_zero) {
  const bool strings = table.config().string_keys;
  if (tensor.dtype() != (strings ? tensorflow::DT_STRING : tensorflow::DT_INT64)) {
    return TableError(table, "keys are ", tensorflow::DataTypeString(tensor.dtype()), ", expected ",
                      strings ? "string" : "int64");
  }
  const int64_t count = tensor.NumElements();
  if (count > std::numeric_limits<int32_t>::max()) {
    return TableError(table, count, " keys at once, expected at most ", std::numeric_limits<int32_t>::max());
  }
  batch_.count = static_cast<size_t>(count);
  masked_.resize(mask_zero ? count : 0);
  if (!strings) {
    batch_.keys = reinterpret_cast<const uint64_t*>(tensor.flat<int64_t>().data());
    for (size_t i = 0; i < masked_.size(); ++i) masked_[i] = batch_.keys[i] == 0;
    return absl::OkStatus();
  }
  const auto texts = tensor.flat<tensorflow::tstring>();
  fingerprints_.resize(count);
  texts_.resize(count);
  for (int64_t i = 0; i < count; ++i) {
    texts_[i] = std::string_view(texts(i).data(), texts(i).size());
    if (texts_[i].size() > StringArena::kMaxBytes) {
      return TableError(table, "a key of ", texts_[i].size(), " bytes, expected at most ", StringArena::kMaxBytes);
    }
    fingerprints_[i] = FingerprintOf(texts_[i]);
    if (mask_zero) masked_[i] = texts_[i].empty();
  }
  batch_.keys = fingerprints_.data();
  batch_.texts = texts_.data();
  return absl::OkStatus();
}

absl::Status ReadCombiner(const std::string& name, Combiner* combiner) {
  if (name == "none") {
    *combiner = Combiner::kNone;
  } else if (name == "sum") {
    *combiner = Combiner::kSum;
  } else if (name == "mean") {
    *combiner = Combiner::kMean;
  } else if (name == "sqrtn") {
    *combiner = Combiner::kSqrtn;
  } else {
    return absl::InvalidArgumentError(absl::StrCat("combiner is '", name, "', expected none, sum, mean or sqrtn"));
  }
  return absl::OkStatus();
}

absl::Status ReadBags(const ElasticTable& table, Combiner combiner, const Tensor& row_splits, const Tensor& weights,
                      const KeyInput& keys, Bags* bags) {
  const int64_t count = static_cast<int64_t>(keys.batch().count);
  bags->combiner = combiner;
  bags->masked = keys.masked();
  const int64_t splits = row_splits.NumElements();
  if (combiner == Combiner::kNone) {
    if (splits != 0) return TableError(table, splits, " row splits without a combiner, expected none");
    if (weights.NumElements() != 0) return TableError(table, "weights without a combiner, expected none");
    return absl::OkStatus();
  }
  if (splits == 0) return TableError(table, "no row splits, expected them with a combiner");
  bags->splits = row_splits.flat<int64_t>().data();
  bags->count = static_cast<size_t>(splits - 1);
  bool ordered = bags->splits[0] == 0 && bags->splits[splits - 1] == count;
  for (int64_t i = 1; i < splits; ++i) ordered = ordered && bags->splits[i - 1] <= bags->splits[i];
  if (!ordered) return TableError(table, "row splits do not ascend from 0 to ", count, ", the number of keys");
  if (weights.NumElements() != 0) {
    if (weights.NumElements() != count) {
      return TableError(table, weights.NumElements(), " weights, expected ", count, ", one per key");
    }
    bags->weights = weights.flat<float>().data();
  }
  return absl::OkStatus();
}

}  // namespace elastic_training
