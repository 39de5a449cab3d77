// SPDX-License-Identifier: Apache-2.0
// Keys and bags of an op, read from tensors and checked.
#ifndef ELASTIC_TRAINING_OPS_KEY_INPUT_H_
#define ELASTIC_TRAINING_OPS_KEY_INPUT_H_

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "src/pooling/pooling.h"
#include "src/storage/elastic_table.h"
#include "tensorflow/core/framework/tensor.h"

namespace elastic_training {

/// Returns the FarmHash Fingerprint64 of a string key.
uint64_t FingerprintOf(std::string_view text);

class KeyInput {
 public:
  /// Reads keys of any shape, which must be of the table's type. `tensor` must outlive this. With `mask_zero`, the key 0 or ""
  /// is masked.
  absl::Status Read(const ElasticTable& table, const tensorflow::Tensor& tensor, bool mask_zero = false);

  const KeyBatch& batch() const { return batch_; }
  /// [count], or null.
  const uint8_t* masked() const { return masked_.empty() ? nullptr : masked_.data(); }

 private:
  KeyBatch batch_;
  std::vector<uint64_t> fingerprints_;
  std::vector<std::string_view> texts_;
  std::vector<uint8_t> masked_;
};

/// Reads "none", "sum", "mean" or "sqrtn".
absl::Status ReadCombiner(const std::string& name, Combiner* combiner);

/// Reads the bags of `count` keys. Without a combiner `row_splits` must be empty. `weights` are [count] or empty.
absl::Status ReadBags(const ElasticTable& table, Combiner combiner, const tensorflow::Tensor& row_splits,
                      const tensorflow::Tensor& weights, const KeyInput& keys, Bags* bags);

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_OPS_KEY_INPUT_H_
