// SPDX-License-Identifier: Apache-2.0
// Recurrent layers: a state that each position of a sequence changes, as a GRU or an LSTM does.
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

/// With sums `s_g = x · W_g + b_g`, a state h and σ the sigmoid:
enum class RecurrentCell {
  /// z = σ(s_z + h · U_z + c_z), r = σ(s_r + h · U_r + c_r), h' = z ∘ h + (1 − z) ∘ tanh(s_h + r ∘ (h · U_h + c_h)).
  kGru,
  /// The same but for h' = z ∘ h + (1 − z) ∘ tanh(s_h + (r ∘ h) · U_h), without c.
  kGruResetBefore,
  /// i, f, o = σ(s + h · U), c' = f ∘ c + i ∘ tanh(s_c + h · U_c), h' = o ∘ tanh(c').
  kLstm,
};

/// Gates of a cell: z, r, h of a GRU; i, f, c, o of an LSTM.
constexpr int64_t RecurrentGates(RecurrentCell cell) { return cell == RecurrentCell::kLstm ? 4 : 3; }

/// A layer as a model has it; n is RecurrentGates(cell) · units, the gates lie side by side. What pointers lead to is
/// copied.
struct RecurrentWeights {
  RecurrentCell cell = RecurrentCell::kGru;
  int64_t inputs = 0;
  int64_t units = 0;
  const float* kernel = nullptr;          // [inputs, n]
  const float* recurrent = nullptr;       // [units, n]
  const float* bias = nullptr;            // [n], or null
  const float* recurrent_bias = nullptr;  // [n], or null; of kGru alone
};

/// How positions of a sequence are gone through.
struct RecurrentRule {
  bool sequences = false;  // the state after each step is asked for, not that after the last alone
  bool backwards = false;  // the last position first
};

/// Computes the states of sequences, the first being zero.
///
/// What positions themselves give is computed for many of them in one product; then some rows take one step after the
/// other together.
class RecurrentLayer {
 public:
  explicit RecurrentLayer(const RecurrentWeights& weights);

  RecurrentLayer(const RecurrentLayer&) = delete;
  RecurrentLayer& operator=(const RecurrentLayer&) = delete;

  int64_t inputs() const { return inputs_; }
  int64_t units() const { return units_; }
  /// Floats that `Rows` needs to work in.
  size_t scratch(int64_t length) const;
  /// Multiplications for a position.
  int64_t position_cost() const { return (inputs_ + units_ + 16) * gates_ * units_; }

  /// Computes rows [begin, end); a position that a mask does not let count leaves the state as it is.
  ///
  /// \param x [rows, length, inputs]
  /// \param mask of all rows, or null
  /// \param states [rows, units], or [rows, length, units] with `rule.sequences`: those after each step, in the order of
  ///        the steps
  /// \param stopped asked now and then, by any thread: whether nobody waits for the states any more, which are left as
  ///        they are then
  void Rows(const float* x, const SequenceMask* mask, int64_t begin, int64_t end, int64_t length,
            const RecurrentRule& rule, float* scratch, float* states, Isa isa = ThisCpu().isa,
            const std::function<bool()>& stopped = nullptr) const;

 private:
  // Rows that take a step together.
  static constexpr int64_t kBlock = 32;
  // Floats of the sums of positions that are kept; they stay in the second-level cache.
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
  Packed input_;      // all gates, with all of the bias but that of the candidate's part of the state
  Packed state_;      // the gates that take the state as it is
  Packed candidate_;  // of a GRU: the last gate
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_RECURRENT_LAYER_H_
