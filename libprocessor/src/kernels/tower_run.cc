// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/tower_run.h"

#include <algorithm>
#include <limits>

#include "src/kernels/int8_matmul.h"
#include "src/kernels/panel_matmul.h"

namespace processor {
namespace {

constexpr int64_t kRowUnit = OnednnMatmul::kRowUnit;

// Whether a layer reads a value for each row. What has one row while the layer has many is in the bias already.
bool IsHere(const TowerLayout& layout, size_t layer, const TowerValue& value) {
  return layout.layer(layer).single || !layout.place(value).single;
}

// Whether values are added to the products of a layer, so that its activation comes after them.
bool HasSums(const TowerLayout& layout, size_t layer) {
  const std::vector<TowerValue>& add = layout.tower().plan().layers[layer].add;
  return std::any_of(add.begin(), add.end(), [&](const TowerValue& value) { return IsHere(layout, layer, value); });
}

// Calls `compute(product, first, last)` for each product of a dense layer, in their order.
template <typename Compute>
absl::Status EachProduct(const TowerLayout& layout, size_t number, const Compute& compute) {
  const TowerLayer& layer = layout.tower().plan().layers[number];
  const auto here = [&](size_t i) { return IsHere(layout, number, layer.inputs[i]); };
  size_t last = layer.inputs.size();
  for (size_t i = 0; i < layer.inputs.size(); ++i) {
    if (here(i)) last = i;
  }
  bool first = true;
  for (size_t i = 0; i < layer.inputs.size(); ++i) {
    if (!here(i)) continue;
    if (absl::Status s = compute(i, first, i == last); !s.ok()) return s;
    first = false;
  }
  return absl::OkStatus();
}

// Whether oneDNN computes a layer from bfloat16 sources.
bool IsHalf(const TowerLayout& layout, size_t layer) {
  return layout.tower().dense(layer).type == PanelType::kBfloat16 && layout.half_sources() &&
         !layout.layer(layer).single;
}

// The call of a product of `rows` rows, without the pointers of its rows. `bias`: null except for the first product.
OnednnMatmul::Call CallFor(const TowerLayout& layout, size_t layer, size_t product, int64_t rows, const float* bias,
                           bool activate) {
  const TowerLayer& planned = layout.tower().plan().layers[layer];
  const TowerLayerPlace& place = layout.layer(layer);
  const TowerPlace& src = layout.place(planned.inputs[product]);
  const bool half = IsHalf(layout, layer);
  OnednnMatmul::Call call;
  call.rows = rows;
  call.src_stride = half ? src.half_stride : src.stride;
  call.bias = bias;
  call.accumulate = bias == nullptr;
  // With float sources, what oneDNN makes of NaN depends on the number of rows.
  call.activate = activate && half && OnednnMatmul::CanApply(planned.activation);
  call.dst_bfloat16 = half && place.offset < 0;
  call.dst_stride = call.dst_bfloat16 ? place.half_stride : place.stride;
  return call;
}

}  // namespace

TowerRun::TowerRun(const TowerLayout& layout, absl::Span<const TowerInput> inputs, absl::Span<float* const> outputs,
                   float* single)
    : layout_(layout),
      tower_(layout.tower()),
      math_(RowMathFor(tower_.options().isa)),
      inputs_(inputs),
      outputs_(outputs),
      single_(single) {}

absl::Status TowerRun::PrepareKernels(const TowerLayout& layout) {
  const DenseTower& tower = layout.tower();
  for (size_t number = 0; number < tower.plan().layers.size(); ++number) {
    if (tower.plan().layers[number].kind != LayerKind::kDense) continue;
    const DenseTower::Dense& dense = tower.dense(number);
    // A layer of one row for all never has as many rows as oneDNN is used for.
    if (layout.layer(number).single || (dense.type == PanelType::kBfloat16 && !layout.half_sources())) continue;
    const bool adds = HasSums(layout, number);
    const absl::Status made = EachProduct(layout, number, [&](size_t product, bool first, bool last) {
      const OnednnMatmul* onednn = dense.products[product].onednn.get();
      const int64_t most = onednn == nullptr ? 0 : TowerLayout::PaddedRows(layout.block_rows());
      const int64_t fewest = dense.type == PanelType::kFloat32 ? tower.fewest_onednn_rows() : kRowUnit;
      for (int64_t rows = fewest; rows <= most; rows += kRowUnit) {
        const OnednnMatmul::Call call =
            CallFor(layout, number, product, rows, first ? dense.bias.data() : nullptr, last && !adds);
        if (absl::Status s = onednn->Prepare(call); !s.ok()) return s;
      }
      return absl::OkStatus();
    });
    if (!made.ok()) return made;
  }
  return absl::OkStatus();
}

SrcRows TowerRun::Read(const TowerValue& value, const Block& block) const {
  const TowerPlace& place = layout_.place(value);
  if (place.area == TowerPlace::Area::kInput) {
    return {inputs_[place.number].data + block.first * place.stride, place.stride};
  }
  const DstRows rows = Write(place, block);
  return {rows.data, rows.stride};
}

DstRows TowerRun::Write(const TowerPlace& place, const Block& block) const {
  switch (place.area) {
    case TowerPlace::Area::kOutput:
      return {outputs_[place.number] + block.first * place.stride, place.stride};
    case TowerPlace::Area::kSingle:
      return {single_ + place.offset, 0};
    default:
      return {block.memory + place.offset * block.padded, place.stride};
  }
}

uint16_t* TowerRun::Half(const TowerPlace& place, const Block& block) const {
  return reinterpret_cast<uint16_t*>(block.memory + place.half_offset * block.padded);
}

absl::Status TowerRun::ComputeSingles() const {
  const Block row{0, 1, 1, nullptr, single_ + layout_.single_rounded_offset()};
  for (size_t i = 0; i < tower_.plan().layers.size(); ++i) {
    absl::Status status;
    if (layout_.layer(i).single) {
      status = ComputeLayer(i, row);
    } else if (layout_.layer(i).folded_bias >= 0) {
      status = FoldSingles(i);
    }
    if (!status.ok()) return status;
  }
  return absl::OkStatus();
}

absl::Status TowerRun::ComputeRows(int64_t begin, int64_t end, int64_t block_rows, float* scratch,
                                   absl::FunctionRef<absl::Status()> look) const {
  const int64_t rows = end - begin, blocks = (rows + block_rows - 1) / block_rows;
  for (int64_t b = 0; b < blocks; ++b) {
    Block block;
    // Of equal size: a rest of a few rows would read all weights for little.
    block.first = begin + rows * b / blocks;
    block.rows = begin + rows * (b + 1) / blocks - block.first;
    block.padded = TowerLayout::PaddedRows(block.rows);
    block.memory = scratch;
    block.rounded = scratch + layout_.rounded_offset() * block.padded;
    for (size_t i = 0; i < inputs_.size(); ++i) {
      const TowerPlace& place = layout_.input(i);
      if (place.half_offset < 0) continue;
      const SrcRows src{inputs_[i].data + block.first * place.stride, place.stride};
      math_.to_bfloat16(block.rows, place.width, src, Half(place, block), place.half_stride);
    }
    for (size_t i = 0; i < tower_.plan().layers.size(); ++i) {
      if (layout_.layer(i).single) continue;
      if (absl::Status s = ComputeLayer(i, block); !s.ok()) return s;
    }
    WriteOutputs(block);
    if (b + 1 == blocks) break;
    if (absl::Status s = look(); !s.ok()) return s;
  }
  return absl::OkStatus();
}

bool TowerRun::ComputeTogether(int64_t rows, float* scratch, const TowerShare& share) const {
  Block block{0, rows, TowerLayout::PaddedRows(rows), scratch, nullptr, &share};
  for (size_t i = 0; i < tower_.plan().layers.size(); ++i) {
    if (!ComputeShared(i, block)) return false;
  }
  if (share.first()) WriteOutputs(block);
  return share.Sync();
}

// A layer that is computed together. Only products are worth dividing: the rest is done by the first member, while the
// others wait.
bool TowerRun::ComputeShared(size_t number, const Block& block) const {
  const TowerLayer& layer = tower_.plan().layers[number];
  const TowerLayerPlace& place = layout_.layer(number);
  const TowerShare& share = *block.share;
  if (layer.kind != LayerKind::kDense) {
    if (share.first()) (void)ComputeLayer(number, block);  // only oneDNN can fail
    return share.Sync();
  }
  const bool relu = place.activation.kind == ActivationKind::kRelu || place.activation.kind == ActivationKind::kNone;
  const bool fused = relu && layer.add.empty();
  const DstRows dst = Write(place, block);
  for (size_t i = 0; i < layer.inputs.size(); ++i) {
    const bool last = i + 1 == layer.inputs.size();
    MultiplyPanels(number, i, block.rows, Read(layer.inputs[i], block), nullptr,
                   i == 0 ? tower_.dense(number).bias.data() : nullptr, last && fused, dst, &share);
  }
  if (!share.Sync()) return false;
  if (fused) return true;
  if (share.first()) {
    for (const TowerValue& value : layer.add) math_.add(block.rows, place.width, Read(value, block), dst);
    math_.activate(place.activation, block.rows, place.width, dst);
  }
  return share.Sync();
}

absl::Status TowerRun::ComputeLayer(size_t number, const Block& block) const {
  const TowerLayer& layer = tower_.plan().layers[number];
  const TowerLayerPlace& place = layout_.layer(number);
  if (layer.kind == LayerKind::kDense) return ComputeDense(number, block);
  const int64_t rows = block.rows, width = place.width;
  const DstRows dst = Write(place, block);
  const SrcRows first = Read(layer.inputs[0], block);
  switch (layer.kind) {
    case LayerKind::kAffine:
      math_.affine(rows, width, first, place.scale, place.shift, dst);
      break;
    case LayerKind::kLayerNorm:
      math_.layer_norm(rows, width, first, place.scale, place.shift, layer.epsilon, dst);
      break;
    case LayerKind::kAdd:
    case LayerKind::kMultiply:
      CopyRows(rows, width, first, dst);
      for (size_t i = 1; i < layer.inputs.size(); ++i) {
        (layer.kind == LayerKind::kAdd ? math_.add : math_.multiply)(rows, width, Read(layer.inputs[i], block), dst);
      }
      break;
    case LayerKind::kConcat: {
      int64_t column = 0;
      for (const TowerValue& value : layer.inputs) {
        const int64_t columns = layout_.place(value).width;
        CopyRows(rows, columns, Read(value, block), {dst.data + column, dst.stride});
        column += columns;
      }
      break;
    }
    case LayerKind::kMix:
      for (int64_t r = 0; r < rows; ++r) std::fill_n(dst.data + r * dst.stride, width, 0.0f);
      for (size_t i = 1; i < layer.inputs.size(); ++i) {
        math_.multiply_add(rows, width, {first.data + i - 1, first.stride}, Read(layer.inputs[i], block), dst);
      }
      break;
    case LayerKind::kDense:
      break;
  }
  math_.activate(place.activation, rows, width, dst);
  if (place.half_offset >= 0) {
    math_.to_bfloat16(rows, width, {dst.data, dst.stride}, Half(place, block), place.half_stride);
  }
  return absl::OkStatus();
}

absl::Status TowerRun::ComputeDense(size_t number, const Block& block) const {
  const TowerLayer& layer = tower_.plan().layers[number];
  const TowerLayerPlace& place = layout_.layer(number);
  const float* bias = place.folded_bias >= 0 ? single_ + place.folded_bias : tower_.dense(number).bias.data();
  const bool adds = HasSums(layout_, number);
  bool none = true;
  const absl::Status multiplied = EachProduct(layout_, number, [&](size_t product, bool first, bool last) {
    none = false;
    return Multiply(number, product, block, first ? bias : nullptr, last && !adds);
  });
  if (!multiplied.ok()) return multiplied;
  if (place.offset < 0) return absl::OkStatus();  // written as bfloat16 by oneDNN
  const DstRows dst = Write(place, block);
  if (none) CopyRows(block.rows, place.width, {bias, 0}, dst);
  for (const TowerValue& value : layer.add) {
    if (IsHere(layout_, number, value)) math_.add(block.rows, place.width, Read(value, block), dst);
  }
  if (none || adds) math_.activate(place.activation, block.rows, place.width, dst);
  if (place.half_offset >= 0) {
    math_.to_bfloat16(block.rows, place.width, {dst.data, dst.stride}, Half(place, block), place.half_stride);
  }
  return absl::OkStatus();
}

absl::Status TowerRun::FoldSingles(size_t number) const {
  const TowerLayer& layer = tower_.plan().layers[number];
  const DenseTower::Dense& dense = tower_.dense(number);
  const DstRows folded{single_ + layout_.layer(number).folded_bias, 0};
  const Block row{0, 1, 1, nullptr, nullptr};
  CopyRows(1, dense.units(), {dense.bias.data(), 0}, folded);
  for (size_t i = 0; i < layer.inputs.size(); ++i) {
    if (!layout_.place(layer.inputs[i]).single) continue;
    MultiplyPanels(number, i, 1, Read(layer.inputs[i], row), single_ + layout_.single_rounded_offset(), nullptr, false,
                   folded);
  }
  for (const TowerValue& value : layer.add) {
    if (layout_.place(value).single) math_.add(1, dense.units(), Read(value, row), folded);
  }
  return absl::OkStatus();
}

absl::Status TowerRun::Multiply(size_t layer, size_t product, const Block& block, const float* bias,
                                bool activate) const {
  const TowerValue& input = tower_.plan().layers[layer].inputs[product];
  const TowerLayerPlace& place = layout_.layer(layer);
  const DenseTower::Dense& dense = tower_.dense(layer);
  const OnednnMatmul* onednn = dense.products[product].onednn.get();
  OnednnMatmul::Call call;
  if (IsHalf(layout_, layer)) {
    call = CallFor(layout_, layer, product, block.padded, bias, activate);
    call.src = Half(layout_.place(input), block);
    call.dst = call.dst_bfloat16 ? static_cast<void*>(Half(place, block)) : Write(place, block).data;
    if (absl::Status s = onednn->Run(call); !s.ok()) return s;
    if (activate && !call.activate) math_.activate(place.activation, block.rows, place.width, Write(place, block));
    return absl::OkStatus();
  }

  SrcRows src = Read(input, block);
  DstRows dst = Write(place, block);
  int64_t done = 0;
  if (onednn != nullptr && dense.type == PanelType::kFloat32 && block.rows >= tower_.fewest_onednn_rows()) {
    // What is left of the last eight rows goes through our own products: inputs and outputs end with their last row.
    done = block.rows / kRowUnit * kRowUnit;
    call = CallFor(layout_, layer, product, done, bias, activate);
    call.src = src.data;
    call.dst = dst.data;
    if (absl::Status s = onednn->Run(call); !s.ok()) return s;
    if (activate) math_.activate(place.activation, done, place.width, dst);
  }
  src.data += done * src.stride;
  dst.data += done * dst.stride;
  MultiplyPanels(layer, product, block.rows - done, src, block.rounded, bias, activate, dst);
  return absl::OkStatus();
}

void TowerRun::MultiplyPanels(size_t layer, size_t product, int64_t rows, SrcRows src, float* rounded,
                              const float* bias, bool activate, DstRows dst, const TowerShare* share) const {
  const DenseTower::Dense& dense = tower_.dense(layer);
  const RowActivation& activation = layout_.layer(layer).activation;
  const PanelShape& shape = dense.products[product].shape;
  const bool relu = activation.kind == ActivationKind::kRelu;
  const float floor = activate && relu ? 0 : -std::numeric_limits<float>::infinity();
  const bool zero_nan = activate && relu && activation.zero_nan;
  if (dense.type == PanelType::kInt8) {
    const ByteRows bytes = ByteRows::In(rounded, rows, shape.k);
    RoundToBytes(rows, shape.k, src, bytes);
    MultiplyInt8({rows, bytes, shape, dense.products[product].panels, bias, floor, zero_nan, dst.data, dst.stride});
    if (activate && !relu) math_.activate(activation, rows, shape.n, dst);
    return;
  }
  if (dense.type == PanelType::kBfloat16 && tower_.rounds_activations()) {
    const DstRows copy{rounded, (shape.k + 15) / 16 * 16};
    math_.round(rows, shape.k, src, copy);
    src = {copy.data, copy.stride};
  }
  PanelMatmul matmul;
  matmul.rows = rows;
  matmul.src = src.data;
  matmul.src_stride = src.stride;
  matmul.shape = shape;
  matmul.panels = dense.products[product].panels;
  matmul.bias = bias;
  matmul.floor = floor;
  matmul.zero_nan = zero_nan;
  matmul.dst = dst.data;
  matmul.dst_stride = dst.stride;
  if (share != nullptr) {
    const int64_t panels = shape.panels(), begin = share->begin(panels), end = share->end(panels);
    if (begin == end) return;
    const int64_t column = begin * kPanelColumns;
    matmul.panels = static_cast<const unsigned char*>(matmul.panels) + begin * shape.panel_bytes();
    matmul.shape.n = std::min(end * kPanelColumns, shape.n) - column;
    if (bias != nullptr) matmul.bias += column;
    matmul.dst += column;
  }
  processor::MultiplyPanels(tower_.options().isa, matmul);
  if (activate && !relu && activation.kind != ActivationKind::kNone) math_.activate(activation, rows, shape.n, dst);
}

void TowerRun::WriteOutputs(const Block& block) const {
  for (size_t i = 0; i < outputs_.size(); ++i) {
    const TowerValue& value = tower_.plan().outputs[i];
    const TowerPlace& place = layout_.place(value);
    if (place.area == TowerPlace::Area::kOutput && place.number == static_cast<int>(i)) continue;
    CopyRows(block.rows, place.width, Read(value, block), {outputs_[i] + block.first * place.width, place.width});
  }
}

}  // namespace processor
