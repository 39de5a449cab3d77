// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/target_attention.h"

#include <algorithm>
#include <limits>

#include "src/kernels/panel_matmul.h"
#include "src/kernels/sequence_pooling.h"
#include "src/kernels/vector_loops.h"

namespace processor {
namespace {

PROCESSOR_ALWAYS_INLINE void Write(const float* query, const float* key, int64_t dim, bool with_key, bool with_product,
                                   float* dst) {
  if (with_key) {
    for (int64_t i = 0; i < dim; ++i) dst[i] = key[i];
    dst += dim;
  }
  if (with_product) {
    for (int64_t i = 0; i < dim; ++i) dst[i] = query[i] * key[i];
  }
}

PROCESSOR_TARGET_AVX512 void WriteAvx512(const float* query, const float* key, int64_t dim, bool with_key,
                                         bool with_product, float* dst) {
  Write(query, key, dim, with_key, with_product, dst);
}

PROCESSOR_TARGET_AVX2 void WriteAvx2(const float* query, const float* key, int64_t dim, bool with_key,
                                     bool with_product, float* dst) {
  Write(query, key, dim, with_key, with_product, dst);
}

PROCESSOR_TARGET_AVX512 bool FiniteAvx512(const float* values, int64_t size) { return AllFinite(values, size); }
PROCESSOR_TARGET_AVX2 bool FiniteAvx2(const float* values, int64_t size) { return AllFinite(values, size); }

}  // namespace

TargetAttention::TargetAttention(int64_t dim, const std::vector<AttentionPart>& parts,
                                 const std::vector<AttentionLayer>& layers, const AttentionRule& rule)
    : dim_(dim), rule_(rule) {
  const AttentionLayer& first = layers.front();
  const int64_t size = dim * first.units;
  parts_ = parts;
  whole_.assign(first.kernel, first.kernel + static_cast<int64_t>(parts.size()) * size);
  // In double precision: they count for every request.
  std::vector<double> query(size), key(size), product(size);
  for (size_t part = 0; part < parts.size(); ++part) {
    const float* kernel = first.kernel + part * size;
    const AttentionPart kind = parts[part];
    for (int64_t i = 0; i < size; ++i) {
      if (kind == AttentionPart::kProduct) product[i] += kernel[i];
      if (kind == AttentionPart::kQuery || kind == AttentionPart::kQueryMinusKey) query[i] += kernel[i];
      if (kind == AttentionPart::kKeyMinusQuery) query[i] -= kernel[i];
      if (kind == AttentionPart::kKey || kind == AttentionPart::kKeyMinusQuery) key[i] += kernel[i];
      if (kind == AttentionPart::kQueryMinusKey) key[i] -= kernel[i];
    }
    product_ |= kind == AttentionPart::kProduct;
    key_ |= kind != AttentionPart::kProduct && kind != AttentionPart::kQuery;
  }
  Pack({query.begin(), query.end()}, dim, first.units, &query_);
  query_.bias.assign(first.bias, first.bias + first.units);
  std::vector<float> kernel;
  if (key_) kernel.insert(kernel.end(), key.begin(), key.end());
  if (product_) kernel.insert(kernel.end(), product.begin(), product.end());

  layers_.resize(layers.size());
  int64_t inputs = (key_ ? dim : 0) + (product_ ? dim : 0);
  for (size_t i = 0; i < layers.size(); ++i) {
    const AttentionLayer& layer = layers[i];
    if (i > 0) kernel.assign(layer.kernel, layer.kernel + inputs * layer.units);
    Pack(kernel, inputs, layer.units, &layers_[i]);
    Fill(&layers_[i], layer);
    widest_ = std::max({widest_, inputs, layer.units});
    inputs = layer.units;
  }
}

void TargetAttention::Pack(const std::vector<float>& kernel, int64_t inputs, int64_t units, Packed* packed) const {
  packed->shape.k = inputs;
  packed->shape.n = units;
  packed->panels.resize(packed->shape.bytes());
  PackPanels(kernel.data(), false, packed->shape, packed->panels.data());
}

void TargetAttention::Fill(Packed* packed, const AttentionLayer& layer) const {
  packed->bias.assign(layer.bias, layer.bias + layer.units);
  packed->activation = layer.activation;
  const float** pointers[] = {&packed->activation.weight, &packed->activation.scale, &packed->activation.shift};
  for (int i = 0; i < 3; ++i) {
    if (*pointers[i] == nullptr) continue;
    packed->weights[i].assign(*pointers[i], *pointers[i] + layer.units);
    *pointers[i] = packed->weights[i].data();
  }
}

size_t TargetAttention::scratch(int64_t length) const {
  const int64_t rows = group_rows(length);
  return 2 * kBlock * widest_ + rows * (query_.shape.n + 2 * length) + length;
}

int64_t TargetAttention::position_cost() const {
  int64_t cost = 2 * dim_;
  for (const Packed& layer : layers_) cost += layer.shape.k * layer.shape.n + 8 * layer.shape.n;
  return cost;
}

/// Some rows, whose positions pass through the network together.
class TargetAttention::Group {
 public:
  Group(const TargetAttention& unit, Isa isa, int64_t length, float* scratch)
      : unit_(unit),
        isa_(isa),
        math_(RowMathFor(isa)),
        length_(length),
        blocks_{scratch, scratch + kBlock * unit.widest_} {
    from_query_ = blocks_[1] + kBlock * unit.widest_;
    scores_ = from_query_ + unit.group_rows(length) * unit.query_.shape.n;
    weights_ = scores_ + unit.group_rows(length) * length;
    more_ = weights_ + unit.group_rows(length) * length;
  }

  void Rows(const float* query, const float* keys, absl::Span<const SequenceMask> masks, int64_t first, int64_t rows,
            float* pooled) {
    const int64_t dim = unit_.dim_, inputs = unit_.layers_[0].shape.k;
    query_ = query;
    keys_ = keys;
    Multiply(unit_.query_, rows, query, unit_.query_.bias.data(), from_query_);
    for (int64_t row = 0; row < rows; ++row) {
      float* weights = weights_ + row * length_;
      for (size_t i = 0; i < masks.size(); ++i) {
        masks[i].Row(first + row, i == 0 ? weights : more_);
        for (int64_t t = 0; i > 0 && t < length_; ++t) weights[t] = more_[t] == 0 ? 0 : weights[t];
      }
      for (int64_t t = 0; t < length_; ++t) {
        const int64_t place = row * length_ + t;
        if (!masks.empty() && weights[t] == 0) {
          scores_[place] = unit_.rule_.padding;
          continue;
        }
        WriteInput(query + row * dim, keys + place * dim, blocks_[0] + count_ * inputs);
        rows_[count_] = row;
        places_[count_] = place;
        if (++count_ == kBlock) Flush();
      }
    }
    Flush();
    for (int64_t row = 0; row < rows; ++row) {
      float* scores = scores_ + row * length_;
      if (unit_.rule_.scale != 1) {
        for (int64_t t = 0; t < length_; ++t) scores[t] *= unit_.rule_.scale;
      }
      if (unit_.rule_.softmax) math_.activate({ActivationKind::kSoftmax}, 1, length_, {scores, length_});
      PoolSequence(keys + row * length_ * dim, scores, length_, dim, {}, 0, pooled + row * dim, isa_);
    }
  }

 private:
  void WriteInput(const float* query, const float* key, float* dst) const {
    switch (isa_) {
      case Isa::kAvx512:
        return WriteAvx512(query, key, unit_.dim_, unit_.key_, unit_.product_, dst);
      case Isa::kAvx2:
        return WriteAvx2(query, key, unit_.dim_, unit_.key_, unit_.product_, dst);
      case Isa::kPlain:
        return Write(query, key, unit_.dim_, unit_.key_, unit_.product_, dst);
    }
  }

  bool IsFinite(const float* values, int64_t size) const {
    return isa_ == Isa::kAvx512 ? FiniteAvx512(values, size)
           : isa_ == Isa::kAvx2 ? FiniteAvx2(values, size)
                                : AllFinite(values, size);
  }

  /// dst = src · W + bias, or += without bias.
  void Multiply(const Packed& packed, int64_t rows, const float* src, const float* bias, float* dst) const {
    PanelMatmul matmul;
    matmul.rows = rows;
    matmul.src = src;
    matmul.src_stride = packed.shape.k;
    matmul.shape = packed.shape;
    matmul.panels = packed.panels.data();
    matmul.bias = bias;
    matmul.floor = -std::numeric_limits<float>::infinity();
    matmul.dst = dst;
    matmul.dst_stride = packed.shape.n;
    MultiplyPanels(isa_, matmul);
  }

  /// One position through the first layer as the model has it. Kernels of several parts are put together, which is the same
  /// for numbers; but an infinity of the query that a model adds with both signs is NaN.
  void FirstInOrder(int64_t place, int64_t row, float* dst) const {
    const int64_t dim = unit_.dim_, units = unit_.layers_[0].shape.n;
    const float *query = query_ + row * dim, *key = keys_ + place * dim, *kernel = unit_.whole_.data();
    std::copy_n(unit_.query_.bias.data(), units, dst);
    for (const AttentionPart part : unit_.parts_) {
      for (int64_t i = 0; i < dim; ++i, kernel += units) {
        const float value = PartOf(part, query[i], key[i]);
        for (int64_t unit = 0; unit < units; ++unit) dst[unit] += value * kernel[unit];
      }
    }
  }

  static float PartOf(AttentionPart part, float query, float key) {
    switch (part) {
      case AttentionPart::kQuery:
        return query;
      case AttentionPart::kKey:
        return key;
      case AttentionPart::kQueryMinusKey:
        return query - key;
      case AttentionPart::kKeyMinusQuery:
        return key - query;
      case AttentionPart::kProduct:
        return query * key;
    }
    return 0;
  }

  /// Sends the block through the network and puts its scores where they belong.
  void Flush() {
    if (count_ == 0) return;
    int current = 0;
    for (const Packed& layer : unit_.layers_) {
      const int64_t units = layer.shape.n;
      float* dst = blocks_[1 - current];
      const bool first = &layer == &unit_.layers_.front();
      for (int64_t i = 0; first && i < count_; ++i) {
        std::copy_n(from_query_ + rows_[i] * units, units, dst + i * units);
      }
      Multiply(layer, count_, blocks_[current], first ? nullptr : layer.bias.data(), dst);
      const bool finite = !first || IsFinite(dst, count_ * units);
      for (int64_t i = 0; !finite && i < count_; ++i) {
        if (!AllFinite(dst + i * units, units)) FirstInOrder(places_[i], rows_[i], dst + i * units);
      }
      if (layer.activation.kind != ActivationKind::kNone) {
        math_.activate(layer.activation, count_, units, {dst, units});
      }
      current = 1 - current;
    }
    for (int64_t i = 0; i < count_; ++i) scores_[places_[i]] = blocks_[current][i];
    count_ = 0;
  }

  const TargetAttention& unit_;
  const Isa isa_;
  const RowMath& math_;
  const int64_t length_;
  const float* query_ = nullptr;  // of the rows that are being computed
  const float* keys_ = nullptr;
  float* const blocks_[2];
  float* from_query_;
  float* scores_;
  float* weights_;
  float* more_;
  int64_t count_ = 0;
  int64_t rows_[kBlock];
  int64_t places_[kBlock];
};

void TargetAttention::Rows(const float* query, const float* keys, absl::Span<const SequenceMask> masks, int64_t begin,
                           int64_t end, int64_t length, float* scratch, float* pooled, Isa isa) const {
  Group group(*this, isa, length, scratch);
  const int64_t most = group_rows(length);
  for (int64_t row = begin; row < end; row += most) {
    group.Rows(query + row * dim_, keys + row * length * dim_, masks, row, std::min(most, end - row),
               pooled + row * dim_);
  }
}

}  // namespace processor
