// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/tower_layout.h"

#include <algorithm>
#include <new>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/kernels/int8_matmul.h"

namespace processor {
namespace {

// More rows than this gain nothing: they are busy for longer than weights need to come.
constexpr int64_t kMostRows = 128;
constexpr int64_t kFewestRows = 14;
// Values that outgrow the second-level cache cost less than reading all weights once more.
constexpr int64_t kBlockBytes = int64_t{4} << 20;
// With bfloat16 arithmetic, up to this many rows wait for the weights only, and our own products compute them.
constexpr int64_t kFewHalfRows = 4;

int64_t RoundUp(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

int64_t HalfFloats(const TowerPlace& place) { return (place.half_stride + 1) / 2; }

bool HalfSources(const DenseTower& tower, int64_t rows) { return tower.rounds_activations() && rows > kFewHalfRows; }

}  // namespace

int64_t StrideFor(int64_t width) {
  const int64_t stride = RoundUp(width, 16);
  return width >= 128 && stride % 32 == 0 ? stride + 16 : stride;
}

class TowerLayoutMaker {
 public:
  TowerLayoutMaker(std::shared_ptr<const DenseTower> tower, TowerLayout* layout)
      : tower_(*tower), plan_(tower_.plan()), layout_(*layout) {
    layout_.tower_ = std::move(tower);
  }

  absl::Status Make(absl::Span<const TowerInput> inputs, int64_t rows) {
    layout_.half_sources_ = HalfSources(tower_, rows);
    for (size_t i = 0; i < inputs.size(); ++i) {
      if (inputs[i].width < 1) {
        return absl::InvalidArgumentError(absl::StrCat("input ", i, ": no columns, expected at least one"));
      }
      TowerPlace place;
      place.area = TowerPlace::Area::kInput;
      place.number = static_cast<int>(i);
      place.width = inputs[i].width;
      place.single = inputs[i].rows == 1 && rows != 1;
      place.stride = place.single ? 0 : inputs[i].width;
      place.offset = 0;
      layout_.inputs_.push_back(place);
    }
    for (size_t i = 0; i < plan_.layers.size(); ++i) {
      if (absl::Status s = AddLayer(i); !s.ok()) return s;
    }
    PlaceOutputs();
    PlaceHalves();
    PlaceValues();
    const int64_t bytes = 4 * std::max<int64_t>(layout_.floats_per_row_, 1);
    layout_.block_rows_ = std::clamp(kBlockBytes / bytes, kFewestRows, kMostRows);
    return absl::OkStatus();
  }

 private:
  struct Interval {
    int64_t begin, end;
    int last_use;
  };

  std::string Name(size_t layer) const {
    return absl::StrCat("layer ", layer, " (", LayerKindName(plan_.layers[layer].kind), ")");
  }

  absl::Status CheckWidth(size_t layer, const TowerValue& value, int64_t expected, std::string_view why) const {
    const int64_t width = layout_.place(value).width;
    if (width == expected) return absl::OkStatus();
    const std::string what = value.is_layer ? TowerValueName(value) : absl::StrCat("input ", value.number);
    return absl::InvalidArgumentError(
        absl::StrCat(Name(layer), ": ", what, ": ", width, " columns, expected ", expected, why));
  }

  // A vector of a weight as long as the layer is wide; null for -1 without `missing`.
  absl::Status Vector(size_t layer, int weight, int64_t width, const float* missing, const float** vector) {
    if (weight < 0 && missing == nullptr) return absl::OkStatus();
    std::vector<float> values;
    if (weight >= 0) values = tower_.vector(weight);
    if (weight < 0) values.assign(1, *missing);
    if (static_cast<int64_t>(values.size()) != width) {
      if (values.size() != 1) {
        return absl::InvalidArgumentError(absl::StrCat(Name(layer), ": weight ", weight, " has ", values.size(),
                                                       " elements, expected ", width, " or 1"));
      }
      values.assign(static_cast<size_t>(width), values[0]);
    }
    layout_.vectors_.push_back(std::move(values));
    *vector = layout_.vectors_.back().data();
    return absl::OkStatus();
  }

  absl::Status WidthOf(size_t number, int64_t* width) const {
    const TowerLayer& layer = plan_.layers[number];
    *width = layout_.place(layer.inputs[0]).width;
    switch (layer.kind) {
      case LayerKind::kDense: {
        const DenseTower::Dense& dense = tower_.dense(number);
        for (size_t i = 0; i < layer.inputs.size(); ++i) {
          const std::string why = absl::StrCat(", as weight ", layer.weights[i], " has");
          if (absl::Status s = CheckWidth(number, layer.inputs[i], dense.products[i].shape.k, why); !s.ok()) return s;
        }
        *width = dense.units();
        for (const TowerValue& value : layer.add) {
          if (absl::Status s = CheckWidth(number, value, *width, ", as the layer has units"); !s.ok()) return s;
        }
        return absl::OkStatus();
      }
      case LayerKind::kAdd:
      case LayerKind::kMultiply:
        for (const TowerValue& value : layer.inputs) {
          if (absl::Status s = CheckWidth(number, value, *width, ", as the first input has"); !s.ok()) return s;
        }
        return absl::OkStatus();
      case LayerKind::kConcat:
        *width = 0;
        for (const TowerValue& value : layer.inputs) *width += layout_.place(value).width;
        return absl::OkStatus();
      case LayerKind::kMix: {
        const int64_t gates = static_cast<int64_t>(layer.inputs.size()) - 1;
        if (absl::Status s = CheckWidth(number, layer.inputs[0], gates, ", one for each of the others"); !s.ok()) {
          return s;
        }
        *width = layout_.place(layer.inputs[1]).width;
        for (size_t i = 2; i < layer.inputs.size(); ++i) {
          if (absl::Status s = CheckWidth(number, layer.inputs[i], *width, ", as the others"); !s.ok()) return s;
        }
        return absl::OkStatus();
      }
      case LayerKind::kAffine:
      case LayerKind::kLayerNorm:
        break;
    }
    return absl::OkStatus();
  }

  absl::Status AddLayer(size_t number) {
    const TowerLayer& layer = plan_.layers[number];
    TowerLayerPlace place;
    if (absl::Status s = WidthOf(number, &place.width); !s.ok()) return s;
    bool any_single = false, all_single = true;
    for (const std::vector<TowerValue>* values : {&layer.inputs, &layer.add}) {
      for (const TowerValue& value : *values) {
        any_single = any_single || layout_.place(value).single;
        all_single = all_single && layout_.place(value).single;
      }
    }
    place.single = all_single;
    if (layer.kind == LayerKind::kDense && any_single && !all_single) place.folded_bias = AddSingle(place.width);

    const Activation& activation = layer.activation;
    place.activation.kind = activation.kind;
    place.activation.alpha = activation.alpha;
    place.activation.zero_nan = activation.onednn;
    const float one = 1, zero = 0;
    const float *scale_default = nullptr, *shift_default = nullptr;
    if (layer.kind == LayerKind::kAffine || layer.kind == LayerKind::kLayerNorm) {
      scale_default = &one;
      shift_default = &zero;
    }
    const struct {
      int weight;
      const float* missing;
      const float** vector;
    } vectors[] = {{std::max(layer.scale, layer.gamma), scale_default, &place.scale},
                   {std::max(layer.shift, layer.beta), shift_default, &place.shift},
                   {activation.weight, nullptr, &place.activation.weight},
                   {activation.scale, nullptr, &place.activation.scale},
                   {activation.shift, nullptr, &place.activation.shift}};
    for (const auto& vector : vectors) {
      if (absl::Status s = Vector(number, vector.weight, place.width, vector.missing, vector.vector); !s.ok()) return s;
    }
    layout_.layers_.push_back(place);
    return absl::OkStatus();
  }

  int64_t AddSingle(int64_t width) {
    const int64_t offset = layout_.single_floats_;
    layout_.single_floats_ += RoundUp(width, 16);
    return offset;
  }

  // What leaves the op is computed where it leaves, if each row is.
  void PlaceOutputs() {
    for (size_t i = 0; i < plan_.outputs.size(); ++i) {
      const TowerValue& value = plan_.outputs[i];
      if (!value.is_layer) continue;
      TowerLayerPlace& place = layout_.layers_[value.number];
      if (place.single || place.area == TowerPlace::Area::kOutput) continue;
      place.area = TowerPlace::Area::kOutput;
      place.number = static_cast<int>(i);
      place.stride = place.width;
      place.offset = 0;
    }
  }

  TowerPlace& PlaceOf(const TowerValue& value) {
    return value.is_layer ? static_cast<TowerPlace&>(layout_.layers_[value.number]) : layout_.inputs_[value.number];
  }

  // Which values are needed as bfloat16, and which only so.
  void PlaceHalves() {
    int64_t rounded = 0, single_rounded = 0;  // floats of the widest source that is rounded for one product
    std::vector<bool> as_float(plan_.layers.size(), false);
    const auto use_float = [&](const TowerValue& value) {
      if (value.is_layer) as_float[value.number] = true;
    };
    for (const TowerValue& value : plan_.outputs) use_float(value);
    for (size_t i = 0; i < plan_.layers.size(); ++i) {
      const TowerLayer& layer = plan_.layers[i];
      const PanelType type = tower_.dense(i).type;
      const bool half = tower_.rounds_activations() && type == PanelType::kBfloat16;
      for (const TowerValue& value : layer.add) use_float(value);
      for (const TowerValue& value : layer.inputs) {
        TowerPlace& place = PlaceOf(value);
        int64_t floats = half ? StrideFor(place.width) : 0;
        if (type == PanelType::kInt8) floats = ByteRows::Floats(place.width);
        single_rounded = std::max(single_rounded, floats);
        if (!half || !layout_.half_sources_) rounded = std::max(rounded, floats);
        if (half && layout_.half_sources_ && !place.single) {
          place.half_offset = 0;
          // Without gaps: for rows with gaps between them oneDNN has bfloat16 only in a form that serves as its reference.
          place.half_stride = place.width;
        } else {
          use_float(value);
        }
      }
    }
    for (size_t i = 0; i < plan_.layers.size(); ++i) {
      const TowerLayer& layer = plan_.layers[i];
      // oneDNN can write bfloat16 itself if it does all of the layer.
      const bool whole = layer.kind == LayerKind::kDense && layer.inputs.size() == 1 && layer.add.empty() &&
                         tower_.dense(i).type == PanelType::kBfloat16 && OnednnMatmul::CanApply(layer.activation);
      half_only_.push_back(layout_.layers_[i].half_offset >= 0 && !as_float[i] && whole);
    }
    if (single_rounded > 0) layout_.single_rounded_offset_ = AddSingle(single_rounded);
    rounded_floats_ = rounded;
    layout_.floats_per_row_ = rounded;
  }

  // Values share memory if they do not live at the same time.
  void PlaceValues() {
    std::vector<int> input_uses(layout_.inputs_.size(), -1), layer_uses(plan_.layers.size(), -1);
    const auto use = [&](const TowerValue& value, size_t layer) {
      (value.is_layer ? layer_uses : input_uses)[value.number] = static_cast<int>(layer);
    };
    for (size_t i = 0; i < plan_.layers.size(); ++i) {
      for (const TowerValue& value : plan_.layers[i].inputs) use(value, i);
      for (const TowerValue& value : plan_.layers[i].add) use(value, i);
    }
    for (const TowerValue& value : plan_.outputs) use(value, plan_.layers.size());

    for (size_t i = 0; i < layout_.inputs_.size(); ++i) {
      TowerPlace& place = layout_.inputs_[i];
      if (place.half_offset >= 0) place.half_offset = AddBlock(HalfFloats(place), 0, input_uses[i]);
    }
    for (size_t i = 0; i < plan_.layers.size(); ++i) {
      TowerLayerPlace& place = layout_.layers_[i];
      const int now = static_cast<int>(i);
      if (place.half_offset >= 0) place.half_offset = AddBlock(HalfFloats(place), now, layer_uses[i]);
      if (place.area == TowerPlace::Area::kOutput || half_only_[i]) continue;
      // Without gaps for oneDNN: with them it computes by its reference code.
      const bool by_onednn = (layout_.half_sources_ && tower_.dense(i).type == PanelType::kBfloat16) ||
                             tower_.fewest_onednn_rows() != kNoOnednnRows;
      place.stride = place.single ? 0 : by_onednn ? place.width : StrideFor(place.width);
      place.area = place.single ? TowerPlace::Area::kSingle : TowerPlace::Area::kBlock;
      place.offset = place.single ? AddSingle(place.width) : AddBlock(place.stride, now, std::max(now, layer_uses[i]));
    }
  }

  // The lowest place that is free from layer `first` on.
  int64_t AddBlock(int64_t floats, int first, int last_use) {
    floats = RoundUp(floats, 16);
    std::sort(intervals_.begin(), intervals_.end(),
              [](const Interval& a, const Interval& b) { return a.begin < b.begin; });
    int64_t begin = rounded_floats_;
    for (const Interval& interval : intervals_) {
      if (interval.last_use < first || interval.end <= begin) continue;
      if (interval.begin >= begin + floats) break;
      begin = interval.end;
    }
    intervals_.push_back({begin, begin + floats, last_use});
    layout_.floats_per_row_ = std::max(layout_.floats_per_row_, begin + floats);
    return begin;
  }

  const DenseTower& tower_;
  const TowerPlan& plan_;
  TowerLayout& layout_;
  std::vector<bool> half_only_;
  std::vector<Interval> intervals_;
  int64_t rounded_floats_ = 0;
};

absl::Status TowerLayout::Create(std::shared_ptr<const DenseTower> tower, absl::Span<const TowerInput> inputs,
                                 int64_t rows, std::shared_ptr<const TowerLayout>* layout) try {
  std::shared_ptr<TowerLayout> made(new TowerLayout());
  TowerLayoutMaker maker(std::move(tower), made.get());
  if (absl::Status s = maker.Make(inputs, rows); !s.ok()) return s;
  *layout = std::move(made);
  return absl::OkStatus();
} catch (const std::bad_alloc&) {
  return absl::ResourceExhaustedError("no memory for the layout of a dense tower");
}

bool TowerLayout::MayBeShared() const {
  const auto single = [](const TowerPlace& place) { return place.single; };
  const TowerOptions& options = tower_->options();
  return !half_sources_ && !options.onednn && options.precision != Precision::kInt8 && !tower_->rounds_activations() &&
         std::none_of(inputs_.begin(), inputs_.end(), single) && std::none_of(layers_.begin(), layers_.end(), single);
}

bool TowerLayout::Fits(absl::Span<const TowerInput> inputs, int64_t rows) const {
  if (inputs.size() != inputs_.size() || half_sources_ != HalfSources(*tower_, rows)) return false;
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (inputs[i].width != inputs_[i].width || (inputs[i].rows == 1 && rows != 1) != inputs_[i].single) return false;
  }
  return true;
}

}  // namespace processor
