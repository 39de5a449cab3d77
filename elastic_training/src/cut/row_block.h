// SPDX-License-Identifier: Apache-2.0
// Rows that a cut has taken, as columns.
#ifndef ELASTIC_TRAINING_CUT_ROW_BLOCK_H_
#define ELASTIC_TRAINING_CUT_ROW_BLOCK_H_

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace elastic_training {

/// In the place of its kind, what a row on SSD has that a checkpoint leaves there: this bit and its place in the log.
constexpr uint32_t kOnSsdKind = 1u << 31;

struct RowBlock {
  /// Keys, or fingerprints of strings [n].
  std::vector<uint64_t> keys;
  /// Last touch [s since 2020-01-01 UTC], count and kind (RowKind) of each row [n, 3].
  std::vector<uint32_t> meta;
  /// Lengths of string keys [n], and their bytes one after the other.
  std::vector<uint32_t> lengths;
  std::string texts;
  /// Weights and slots of the rows that are full, in their order [full rows, dim + slots].
  std::vector<float> values;

  bool empty() const { return keys.empty(); }
  size_t bytes() const {
    return keys.size() * sizeof(uint64_t) + (meta.size() + lengths.size()) * sizeof(uint32_t) + texts.size() +
           values.size() * sizeof(float);
  }

  /// Takes over the rows of another block.
  void Append(RowBlock&& other) {
    if (empty()) {
      *this = std::move(other);
    } else {
      const auto add = [](auto& to, const auto& from) { to.insert(to.end(), from.begin(), from.end()); };
      add(keys, other.keys);
      add(meta, other.meta);
      add(lengths, other.lengths);
      add(values, other.values);
      texts += other.texts;
    }
    other = RowBlock();
  }
};

}  // namespace elastic_training

#endif  // ELASTIC_TRAINING_CUT_ROW_BLOCK_H_
