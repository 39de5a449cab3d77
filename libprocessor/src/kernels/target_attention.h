// SPDX-License-Identifier: Apache-2.0
// The attention unit of DIN: how much each position of a history counts for a candidate, said by a small network.
#ifndef PROCESSOR_KERNELS_TARGET_ATTENTION_H_
#define PROCESSOR_KERNELS_TARGET_ATTENTION_H_

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "src/kernels/cpu_features.h"
#include "src/kernels/row_math.h"
#include "src/kernels/sequence_mask.h"
#include "src/kernels/weight_panels.h"

namespace processor {

/// What the network is given for a position, side by side; q is the query, k the key.
enum class AttentionPart { kQuery, kKey, kQueryMinusKey, kKeyMinusQuery, kProduct };

/// A layer as a model has it. What pointers lead to is copied.
struct AttentionLayer {
  int64_t units = 0;
  const float* kernel = nullptr;  // [inputs, units]
  const float* bias = nullptr;    // [units]
  RowActivation activation;       // with weights [units]
};

struct AttentionRule {
  /// Scores are divided by their sum of exponentials.
  bool softmax = false;
  /// The score of positions that do not count.
  float padding = 0;
  /// Multiplies scores before the softmax.
  float scale = 1;
};

/// `pooled[r] = Σ_t score[r, t] · keys[r, t]`, score being the network's result for (query[r], keys[r, t]).
///
/// The first layer is split: what comes from the query alone is computed once for a row, differences go into the weights
/// of query and key, and positions that do not count are left out.
class TargetAttention {
 public:
  /// \param dim elements of a query and of a key
  /// \param layers at least one; the first has parts.size() · dim inputs, the last has one unit
  TargetAttention(int64_t dim, const std::vector<AttentionPart>& parts, const std::vector<AttentionLayer>& layers,
                  const AttentionRule& rule);

  TargetAttention(const TargetAttention&) = delete;
  TargetAttention& operator=(const TargetAttention&) = delete;

  int64_t dim() const { return dim_; }
  /// Floats that `Rows` needs to work in.
  size_t scratch(int64_t length) const;
  /// Multiplications for a position.
  int64_t position_cost() const;

  /// Computes rows [begin, end).
  ///
  /// \param query [rows, dim]
  /// \param keys [rows, length, dim]
  /// \param masks of all rows; a position counts if all let it
  /// \param pooled [rows, dim]
  void Rows(const float* query, const float* keys, absl::Span<const SequenceMask> masks, int64_t begin, int64_t end,
            int64_t length, float* scratch, float* pooled, Isa isa = ThisCpu().isa) const;

 private:
  // Positions that pass through the network at a time.
  static constexpr int64_t kBlock = 48;
  // Positions whose scores are kept until rows are pooled; at least those of one row.
  static constexpr int64_t kGroup = 512;

  struct Packed {
    PanelShape shape;
    std::vector<unsigned char> panels;
    std::vector<float> bias;
    RowActivation activation;
    std::vector<float> weights[3];  // what the activation's pointers lead to
  };
  class Group;

  void Fill(Packed* packed, const AttentionLayer& layer) const;
  void Pack(const std::vector<float>& kernel, int64_t inputs, int64_t units, Packed* packed) const;

  int64_t group_rows(int64_t length) const { return length >= kGroup ? 1 : kGroup / std::max<int64_t>(length, 1); }

  int64_t dim_ = 0;
  int64_t widest_ = 1;
  bool key_ = false;
  bool product_ = false;
  AttentionRule rule_;
  std::vector<AttentionPart> parts_;
  std::vector<float> whole_;    // the kernel of the first layer, as it is given
  Packed query_;                // of the first layer: the query's part, with the bias
  std::vector<Packed> layers_;  // the first without the query's part and bias
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_TARGET_ATTENTION_H_
