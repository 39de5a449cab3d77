// SPDX-License-Identifier: Apache-2.0
// Where the values of a dense tower lie while a request is computed.
#ifndef PROCESSOR_KERNELS_TOWER_LAYOUT_H_
#define PROCESSOR_KERNELS_TOWER_LAYOUT_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "src/kernels/dense_tower.h"
#include "src/kernels/row_math.h"

namespace processor {

struct TowerInput {
  const float* data = nullptr;
  int64_t rows = 0;
  int64_t width = 0;
};

/// Where a value lies. Offsets in the block are floats per row of the block: what has offset o begins at element
/// o · (rows of the block).
struct TowerPlace {
  enum class Area { kInput, kOutput, kSingle, kBlock };
  Area area = Area::kBlock;
  int number = 0;  // of the input or output
  int64_t width = 0;
  int64_t stride = 0;   // elements from row to row
  int64_t offset = -1;  // in the block or the single rows; -1: only the bfloat16 form is computed
  /// The value as bfloat16, in the block; -1: not needed. Strides of it are elements of 16 bits.
  int64_t half_offset = -1;
  int64_t half_stride = 0;
  /// One row that counts for all.
  bool single = false;
};

struct TowerLayerPlace : TowerPlace {
  /// A dense layer's bias with what its inputs of one row contribute, in the single rows; -1: the bias itself.
  int64_t folded_bias = -1;
  /// Weights of the layer and its activation, as long as it is wide.
  RowActivation activation;
  const float* scale = nullptr;  // or gamma
  const float* shift = nullptr;  // or beta
};

class TowerLayout {
 public:
  /// \param inputs  the first dimensions are not looked at beyond whether an input has one row while the request has
  ///                more (`rows`).
  /// \return INVALID_ARGUMENT, naming input or layer, for widths that do not fit.
  static absl::Status Create(std::shared_ptr<const DenseTower> tower, absl::Span<const TowerInput> inputs, int64_t rows,
                             std::shared_ptr<const TowerLayout>* layout);

  /// Was it made for such inputs?
  bool Fits(absl::Span<const TowerInput> inputs, int64_t rows) const;

  const DenseTower& tower() const { return *tower_; }
  const TowerPlace& place(const TowerValue& value) const {
    return value.is_layer ? layers_[value.number] : inputs_[value.number];
  }
  const TowerPlace& input(size_t number) const { return inputs_[number]; }
  const TowerLayerPlace& layer(size_t number) const { return layers_[number]; }
  /// Elements of output `number` in a row.
  int64_t output_width(size_t number) const { return place(tower_->plan().outputs[number]).width; }

  /// Do products take bfloat16 sources, through oneDNN? Else sources are rounded before our own products.
  bool half_sources() const { return half_sources_; }
  /// May a team compute it? Everything is our own code then, and no value counts for all rows.
  bool MayBeShared() const;
  /// Where a rounded source is put, in the block and in the single rows.
  int64_t rounded_offset() const { return rounded_offset_; }
  int64_t single_rounded_offset() const { return single_rounded_offset_; }

  /// Floats for what is computed once per request.
  int64_t single_floats() const { return single_floats_; }
  /// Most rows of a block, and the floats that one of `rows` rows needs.
  int64_t block_rows() const { return block_rows_; }
  int64_t block_floats(int64_t rows) const { return floats_per_row_ * PaddedRows(rows); }
  /// Rows that a block has room for: what oneDNN computes beyond the last row falls into the rest.
  static int64_t PaddedRows(int64_t rows) {
    return (rows + OnednnMatmul::kRowUnit - 1) / OnednnMatmul::kRowUnit * OnednnMatmul::kRowUnit;
  }

 private:
  TowerLayout() = default;
  friend class TowerLayoutMaker;

  std::shared_ptr<const DenseTower> tower_;
  std::vector<TowerPlace> inputs_;
  std::vector<TowerLayerPlace> layers_;
  std::vector<std::vector<float>> vectors_;
  bool half_sources_ = false;
  int64_t rounded_offset_ = 0;
  int64_t single_rounded_offset_ = 0;
  int64_t single_floats_ = 0;
  int64_t floats_per_row_ = 0;
  int64_t block_rows_ = 1;
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_TOWER_LAYOUT_H_
