// SPDX-License-Identifier: Apache-2.0
// Recurrent layers (GRU, LSTM): a state that each position of a sequence changes.
#ifndef PROCESSOR_KERNELS_RECURRENT_LAYER_H_
#define PROCESSOR_KERNELS_RECURRENT_LAYER_H_

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "src/kernels/cpu_features.h"
#include "src/kernels/row_math.h"
#include "src/kernels/sequence_mask.h"
#include "src/kernels/weight_panels.h"

namespace processor {

/// The formula of a cell, with sums `s_g = x · W_g + b_g`, a state h and the sigmoid σ:
enum class RecurrentCell {
  /// z = σ(s_z + h · U_z + c_z), r = σ(s_r + h · U_r + c_r), h' = z ∘ h + (1 − z) ∘ tanh(s_h + r ∘ (h · U_h + c_h)).
  kGru,
  /// As before, except that h' = z ∘ h + (1 − z) ∘ tanh(s_h + (r ∘ h) · U_h), without c.
  kGruResetBefore,
  /// i, f, o = σ(s + h · U), c' = f ∘ c + i ∘ tanh(s_c + h · U_c), h' = o ∘ tanh(c').
  kLstm,
};

/// Returns the number of gates of a cell: z, r, h of a GRU; i, f, c, o of an LSTM.
constexpr int64_t RecurrentGates(RecurrentCell cell) { return cell == RecurrentCell::kLstm ? 4 : 3; }

/// The weights of a layer, which RecurrentLayer copies. n is RecurrentGates(cell) · units; the gates lie side by side.
struct RecurrentWeights {
  RecurrentCell cell = RecurrentCell::kGru;
  int64_t inputs = 0;
  int64_t units = 0;
  const float* kernel = nullptr;          // [inputs, n]
  const float* recurrent = nullptr;       // [units, n]
  const float* bias = nullptr;            // [n], or null
  const float* recurrent_bias = nullptr;  // [n], or null; only for kGru
};

/// In which order the positions of a sequence are read, and which states are returned.
struct RecurrentRule {
  bool sequences = false;  // whether the state after each step is returned, or only the last one
  bool backwards = false;  // the last position first
};

/// Computes the states of sequences, which start with zero. It is constant once it is made; any thread may compute rows.
///
/// The part of the sums that depends only on positions is computed for many positions in one product; then a group of rows
/// takes one step after another.
class RecurrentLayer {
 public:
  explicit RecurrentLayer(const RecurrentWeights& weights);

  RecurrentLayer(const RecurrentLayer&) = delete;
  RecurrentLayer& operator=(const RecurrentLayer&) = delete;

  int64_t inputs() const { return inputs_; }
  int64_t units() const { return units_; }
  /// Returns the floats of scratch memory that `Rows` needs.
  size_t scratch(int64_t length) const;
  /// Returns the number of multiplications for a position.
  int64_t position_cost() const { return (inputs_ + units_ + 16) * gates_ * units_; }

  /// Computes rows [begin, end). A position that the mask excludes does not change the state.
  ///
  /// \param x [rows, length, inputs]
  /// \param mask of all rows, or null
  /// \param states [rows, units], or [rows, length, units] with `rule.sequences`: those after each step, in the order of
  ///        the steps
  /// \param stopped called from time to time, on any thread; if it returns true, the states are no longer wanted and stay
  ///        incomplete
  void Rows(const float* x, const SequenceMask* mask, int64_t begin, int64_t end, int64_t length,
            const RecurrentRule& rule, float* scratch, float* states, Isa isa = ThisCpu().isa,
            const std::function<bool()>& stopped = nullptr) const;

 private:
  // The most rows that take a step together.
  static constexpr int64_t kBlock = 32;
  // The floats of the sums of positions that are kept at a time; they stay in the second-level cache.
  static constexpr int64_t kSums = 1 << 16;

  struct Packed {
    PanelShape shape;
    std::vector<unsigned char> panels;
    std::vector<float> bias;
  };
  class Block;

  void Pack(const float* kernel, int64_t rows, int64_t first, int64_t columns, Packed* packed) const;
  int64_t steps(int64_t length) const;

  RecurrentCell cell_;
  int64_t inputs_, units_, gates_;
  Packed input_;      // all gates, with all biases except that of the candidate's part of the state
  Packed state_;      // the gates that multiply the unchanged state
  Packed candidate_;  // of a GRU: the last gate
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_RECURRENT_LAYER_H_
