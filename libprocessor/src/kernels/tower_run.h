// SPDX-License-Identifier: Apache-2.0
// Computes a dense tower for one request.
#ifndef PROCESSOR_KERNELS_TOWER_RUN_H_
#define PROCESSOR_KERNELS_TOWER_RUN_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/types/span.h"
#include "src/kernels/row_math.h"
#include "src/kernels/tower_layout.h"
#include "src/kernels/tower_team.h"

namespace processor {

/// One request. Call ComputeSingles() first, then ComputeRows() for all rows, in one call or in several on as many threads.
/// The caller owns all memory, which must outlive this object; nothing is allocated.
class TowerRun {
 public:
  /// \param inputs   inputs for which the layout was made.
  /// \param outputs  [rows, layout.output_width(i)] each.
  /// \param single   [layout.single_floats()], 64-byte aligned.
  TowerRun(const TowerLayout& layout, absl::Span<const TowerInput> inputs, absl::Span<float* const> outputs,
           float* single);

  /// Makes oneDNN's kernels for all numbers of rows of a block, so that no request waits for one to be compiled.
  static absl::Status PrepareKernels(const TowerLayout& layout);

  /// Computes what inputs of one row contribute to all rows.
  absl::Status ComputeSingles() const;

  /// Computes rows `begin` to `end` of the outputs, block by block through all layers.
  /// \param scratch  [layout.block_floats(block_rows)], 64-byte aligned.
  /// \param look     called after each block except the last; an error ends the computation and is returned.
  absl::Status ComputeRows(int64_t begin, int64_t end, int64_t block_rows, float* scratch,
                           absl::FunctionRef<absl::Status()> look = Go) const;

  /// Computes rows 0 to `rows` of the outputs together with the other members of a team, who call it with the same memory:
  /// each member computes some columns of each dense layer. The layout must be MayBeShared(). Returns false if the team
  /// breaks up.
  bool ComputeTogether(int64_t rows, float* scratch, const TowerShare& share) const;

 private:
  // Rows that go through the layers together.
  struct Block {
    int64_t first;
    int64_t rows;
    int64_t padded;
    float* memory;
    float* rounded;
    const TowerShare* share = nullptr;  // null: this thread computes everything
  };

  SrcRows Read(const TowerValue& value, const Block& block) const;
  DstRows Write(const TowerPlace& place, const Block& block) const;
  uint16_t* Half(const TowerPlace& place, const Block& block) const;

  static absl::Status Go() { return absl::OkStatus(); }
  absl::Status ComputeLayer(size_t number, const Block& block) const;
  absl::Status ComputeDense(size_t number, const Block& block) const;
  absl::Status FoldSingles(size_t number) const;
  absl::Status Multiply(size_t layer, size_t product, const Block& block, const float* bias, bool activate) const;
  void MultiplyPanels(size_t layer, size_t product, int64_t rows, SrcRows src, float* rounded, const float* bias,
                      bool activate, DstRows dst, const TowerShare* share = nullptr) const;
  bool ComputeShared(size_t number, const Block& block) const;
  void WriteOutputs(const Block& block) const;

  const TowerLayout& layout_;
  const DenseTower& tower_;
  const RowMath& math_;
  const absl::Span<const TowerInput> inputs_;
  const absl::Span<float* const> outputs_;
  float* const single_;
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_TOWER_RUN_H_
