// SPDX-License-Identifier: Apache-2.0
// The attention unit of DIN: a small network scores how much each position of a history counts for a candidate.
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

/// The inputs of the network for a position, which lie side by side.
enum class AttentionPart { kQuery, kKey, kQueryMinusKey, kKeyMinusQuery, kProduct };

/// A layer of the network, whose weights TargetAttention copies.
struct AttentionLayer {
  int64_t units = 0;
  const float* kernel = nullptr;  // [inputs, units]
  const float* bias = nullptr;    // [units]
  RowActivation activation;       // with weights [units]
};

struct AttentionRule {
  /// Whether scores go through a softmax.
  bool softmax = false;
  /// The score of positions that a mask excludes.
  float padding = 0;
  /// The factor of scores before the softmax.
  float scale = 1;
};

/// Computes `pooled[r] = Σ_t score[r, t] · keys[r, t]`, where the score is the result of the network for
/// (query[r], keys[r, t]). It is constant once it is made; any thread may compute rows.
///
/// The first layer is split: the part of the query is computed once for a row, the weights of differences are added to
/// those of query and key, and excluded positions are skipped.
class TargetAttention {
 public:
  /// \param dim elements of a query and of a key
  /// \param layers at least one; the first has parts.size() · dim inputs, the last has one unit
  TargetAttention(int64_t dim, const std::vector<AttentionPart>& parts, const std::vector<AttentionLayer>& layers,
                  const AttentionRule& rule);

  TargetAttention(const TargetAttention&) = delete;
  TargetAttention& operator=(const TargetAttention&) = delete;

  int64_t dim() const { return dim_; }
  /// Returns the floats of scratch memory that `Rows` needs.
  size_t scratch(int64_t length) const;
  /// Returns the number of multiplications for a position.
  int64_t position_cost() const;

  /// Computes rows [begin, end).
  ///
  /// \param query [rows, dim]
  /// \param keys [rows, length, dim]
  /// \param masks of all rows; a position counts if no mask excludes it
  /// \param pooled [rows, dim]
  void Rows(const float* query, const float* keys, absl::Span<const SequenceMask> masks, int64_t begin, int64_t end,
            int64_t length, float* scratch, float* pooled, Isa isa = ThisCpu().isa) const;

 private:
  // The positions that pass through the network at a time.
  static constexpr int64_t kBlock = 48;
  // The positions whose scores are kept until rows are pooled; at least those of one row.
  static constexpr int64_t kGroup = 512;

  struct Packed {
    PanelShape shape;
    std::vector<unsigned char> panels;
    std::vector<float> bias;
    RowActivation activation;
    std::vector<float> weights[3];  // the weights of the activation
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
  std::vector<float> whole_;    // the kernel of the first layer before it is split
  Packed query_;                // the part of the query in the first layer, with the bias
  std::vector<Packed> layers_;  // the first one without the part of the query and without bias
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_TARGET_ATTENTION_H_
