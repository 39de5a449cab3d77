// SPDX-License-Identifier: Apache-2.0
// The places of the values of a dense tower while a request is computed. A layout is constant once it is made; the requests
// with the same widths of inputs share it.
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

/// Returns the floats from row to row of values of a width: an odd number of cache lines for wide rows, since at a power of
/// two all rows would fall into the same sets of the cache.
int64_t StrideFor(int64_t width);

struct TowerInput {
  const float* data = nullptr;
  int64_t rows = 0;
  int64_t width = 0;
};

/// The place of a value. An offset in the block counts floats per row of the block: a value with offset o begins at element
/// o · (rows of the block).
struct TowerPlace {
  enum class Area { kInput, kOutput, kSingle, kBlock };
  Area area = Area::kBlock;
  int number = 0;  // of the input or output
  int64_t width = 0;
  int64_t stride = 0;   // elements from row to row
  int64_t offset = -1;  // in the block or the single rows; -1: only the bfloat16 form exists
  /// The offset of the bfloat16 form in the block, whose stride counts elements of 16 bits; -1: not needed.
  int64_t half_offset = -1;
  int64_t half_stride = 0;
  /// Whether it is one row that is used for all.
  bool single = false;
};

struct TowerLayerPlace : TowerPlace {
  /// The offset, in the single rows, of the bias plus what inputs of one row contribute; -1: the bias itself.
  int64_t folded_bias = -1;
  /// The weights of the layer and of its activation, as long as the layer is wide.
  RowActivation activation;
  const float* scale = nullptr;  // or gamma
  const float* shift = nullptr;  // or beta
};

class TowerLayout {
 public:
  /// \param inputs  of their first dimensions, it only matters whether an input has one row while the request has more
  ///                (`rows`).
  /// \return INVALID_ARGUMENT that names input or layer for widths that do not fit.
  static absl::Status Create(std::shared_ptr<const DenseTower> tower, absl::Span<const TowerInput> inputs, int64_t rows,
                             std::shared_ptr<const TowerLayout>* layout);

  /// Whether the layout was made for such inputs.
  bool Fits(absl::Span<const TowerInput> inputs, int64_t rows) const;

  const DenseTower& tower() const { return *tower_; }
  const TowerPlace& place(const TowerValue& value) const {
    return value.is_layer ? layers_[value.number] : inputs_[value.number];
  }
  const TowerPlace& input(size_t number) const { return inputs_[number]; }
  const TowerLayerPlace& layer(size_t number) const { return layers_[number]; }
  /// Returns the elements of output `number` in a row.
  int64_t output_width(size_t number) const { return place(tower_->plan().outputs[number]).width; }

  /// Whether products have bfloat16 sources, by oneDNN; otherwise sources are rounded before our own products.
  bool half_sources() const { return half_sources_; }
  /// Whether a team may compute it. That needs our own products of floats and no value of one row for all.
  bool MayBeShared() const;
  /// The offsets, in the block and in the single rows, of a source that is rounded for one product.
  int64_t rounded_offset() const { return rounded_offset_; }
  int64_t single_rounded_offset() const { return single_rounded_offset_; }

  /// Returns the floats of the values that are computed once per request.
  int64_t single_floats() const { return single_floats_; }
  /// Return the most rows of a block, and the floats of a block of `rows` rows.
  int64_t block_rows() const { return block_rows_; }
  int64_t block_floats(int64_t rows) const { return floats_per_row_ * PaddedRows(rows); }
  /// Returns the rows that fit into a block. oneDNN also computes the unused ones at its end.
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
