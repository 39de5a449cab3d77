// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/dense_tower.h"

#include <algorithm>
#include <new>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace processor {
namespace {

// Sizes whose products fit 64 bits with room to spare.
constexpr int64_t kMaxElements = int64_t{1} << 40;

std::string ShowShape(const WeightView& weight) { return absl::StrCat("[", absl::StrJoin(weight.shape, ", "), "]"); }

absl::Status WrongWeight(size_t layer, const TowerPlan& plan, int weight, const WeightView& view,
                         std::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat("layer ", layer, " (", LayerKindName(plan.layers[layer].kind),
                                                 "): weight ", weight, " has shape ", ShowShape(view), ", expected ",
                                                 expected));
}

}  // namespace

TowerOptions TowerOptions::For(Precision precision, const CpuFeatures& cpu) {
  TowerOptions options;
  options.precision = precision;
  options.isa = cpu.isa;
  if (precision == Precision::kInt8) (void)ChoosePrecision("bf16", cpu, &options.beside_int8);
  options.onednn =
      precision == Precision::kBfloat16 || options.beside_int8 == Precision::kBfloat16 || cpu.isa == Isa::kPlain;
  options.faster_floats = cpu.isa != Isa::kPlain;
  return options;
}

int64_t WeightView::elements() const {
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  return count;
}

absl::Status DenseTower::CheckDense(size_t number, absl::Span<const WeightView> weights) {
  const TowerLayer& layer = plan_.layers[number];
  Dense& dense = dense_[number];
  int64_t units = 0;
  for (int weight : layer.weights) {
    const WeightView& view = weights[weight];
    const char* form = layer.transposed ? "[units, k]" : "[k, units]";
    if (view.shape.size() != 2 || view.shape[0] < 1 || view.shape[1] < 1 ||
        view.shape[0] > kMaxElements / view.shape[1]) {
      return WrongWeight(number, plan_, weight, view, absl::StrCat(form, " with at least one of each"));
    }
    const int64_t k = view.shape[layer.transposed ? 1 : 0], n = view.shape[layer.transposed ? 0 : 1];
    if (units != 0 && n != units) {
      return WrongWeight(number, plan_, weight, view,
                         absl::StrCat(form, " with ", units, " units, as those before it"));
    }
    units = n;
    Product product;
    product.shape = PanelShape{k, n, PanelType::kFloat32};
    dense.products.push_back(std::move(product));
  }
  dense.bias.assign(units, 0.0f);
  if (layer.bias < 0) return absl::OkStatus();
  const WeightView& bias = weights[layer.bias];
  if (bias.shape.size() != 1 || bias.shape[0] != units) {
    return WrongWeight(number, plan_, layer.bias, bias, absl::StrCat("the bias [", units, "]"));
  }
  dense.bias.assign(bias.data, bias.data + units);
  return absl::OkStatus();
}

absl::Status DenseTower::TakeVector(size_t layer, const char* what, int weight, absl::Span<const WeightView> weights) {
  if (weight < 0) return absl::OkStatus();
  const WeightView& view = weights[weight];
  if (view.shape.size() != 1 || view.shape[0] < 1) {
    return WrongWeight(layer, plan_, weight, view, absl::StrCat(what, " [k] or [1]"));
  }
  vectors_[weight].assign(view.data, view.data + view.shape[0]);
  return absl::OkStatus();
}

absl::Status DenseTower::TakeVectors(size_t number, absl::Span<const WeightView> weights) {
  const TowerLayer& layer = plan_.layers[number];
  const std::pair<const char*, int> all[] = {{"scale", layer.scale},
                                             {"shift", layer.shift},
                                             {"gamma", layer.gamma},
                                             {"beta", layer.beta},
                                             {"the activation's weight", layer.activation.weight},
                                             {"the activation's scale", layer.activation.scale},
                                             {"the activation's shift", layer.activation.shift}};
  for (const auto& [what, weight] : all) {
    if (absl::Status s = TakeVector(number, what, weight, weights); !s.ok()) return s;
  }
  return absl::OkStatus();
}

// A layer stays float if what it computes leaves the op without passing through another dense layer's weights: small
// errors of a score's last sum are not averaged out by anything.
PanelType DenseTower::TypeOf(size_t layer, bool leaves) const {
  const LayerPrecision least = plan_.layers[layer].precision;
  if (options_.precision == Precision::kFloat32 || leaves || least == LayerPrecision::kFloat32) {
    return PanelType::kFloat32;
  }
  if (options_.precision != Precision::kInt8 || least == LayerPrecision::kBfloat16) return PanelType::kBfloat16;
  const bool fits = std::all_of(dense_[layer].products.begin(), dense_[layer].products.end(),
                                [](const Product& product) { return product.shape.k <= kMostInt8Terms; });
  return fits ? PanelType::kInt8 : PanelType::kBfloat16;
}

void DenseTower::ChooseTypes() {
  std::vector<bool> leaves(plan_.layers.size(), false);
  const auto mark = [&](const TowerValue& value) {
    if (value.is_layer) leaves[value.number] = true;
  };
  for (const TowerValue& value : plan_.outputs) mark(value);
  for (size_t i = plan_.layers.size(); i-- > 0;) {
    const TowerLayer& layer = plan_.layers[i];
    if (layer.kind == LayerKind::kDense) {
      dense_[i].type = TypeOf(i, leaves[i]);
      for (Product& product : dense_[i].products) product.shape.type = dense_[i].type;
    }
    if (!leaves[i]) continue;
    for (const TowerValue& value : layer.add) mark(value);
    if (layer.kind == LayerKind::kDense) continue;
    for (const TowerValue& value : layer.inputs) mark(value);
  }
}

bool DenseTower::UsesOnednn(const Dense& dense) const {
  if (dense.type == PanelType::kInt8) return false;
  if (dense.type == PanelType::kBfloat16) return options_.onednn && rounds_activations();
  return AllFloatsUseOnednn() || options_.faster_floats;
}

bool DenseTower::AllFloatsUseOnednn() const {
  return options_.onednn && (!rounds_activations() || options_.isa == Isa::kPlain);
}

void DenseTower::ChooseFloatProducts() {
  if (AllFloatsUseOnednn()) {
    fewest_onednn_rows_ = OnednnMatmul::kRowUnit;
    return;
  }
  if (!options_.faster_floats) return;
  std::vector<FloatProduct> products;
  for (const Dense& dense : dense_) {
    if (dense.type != PanelType::kFloat32) continue;
    for (const Product& product : dense.products) {
      products.push_back({product.shape, product.panels, product.onednn.get()});
    }
  }
  fewest_onednn_rows_ = FewestRowsForOnednn(options_.isa, products);
  if (fewest_onednn_rows_ != kNoOnednnRows) return;
  for (Dense& dense : dense_) {
    if (dense.type != PanelType::kFloat32) continue;
    for (Product& product : dense.products) product.onednn.reset();
  }
}

absl::Status DenseTower::Pack(absl::Span<const WeightView> weights) {
  int64_t bytes = 0;
  for (const Dense& dense : dense_) {
    for (const Product& product : dense.products) bytes += product.shape.bytes();
  }
  // In the order in which they are read, so that one layer's stream goes on in the next one's.
  panels_ = HugeMemory(static_cast<size_t>(bytes));
  unsigned char* next = panels_.data();
  for (size_t i = 0; i < dense_.size(); ++i) {
    const TowerLayer& layer = plan_.layers[i];
    for (size_t j = 0; j < dense_[i].products.size(); ++j) {
      Product& product = dense_[i].products[j];
      const float* data = weights[layer.weights[j]].data;
      PackPanels(data, layer.transposed, product.shape, next);
      product.panels = next;
      next += product.shape.bytes();
      if (!UsesOnednn(dense_[i])) continue;
      const absl::Status made = OnednnMatmul::Create(data, layer.transposed, product.shape, product.panels,
                                                     layer.activation, &product.onednn);
      if (!made.ok()) return absl::Status(made.code(), absl::StrCat("layer ", i, ": ", made.message()));
    }
  }
  ChooseFloatProducts();
  return absl::OkStatus();
}

absl::Status DenseTower::Create(TowerPlan plan, absl::Span<const WeightView> weights, const TowerOptions& options,
                                std::shared_ptr<const DenseTower>* tower) try {
  for (TowerLayer& layer : plan.layers) layer.activation.onednn = layer.activation.onednn && options.stock_onednn;
  std::shared_ptr<DenseTower> made(new DenseTower(std::move(plan), options));
  made->dense_.resize(made->plan_.layers.size());
  made->vectors_.resize(weights.size());
  for (size_t i = 0; i < made->plan_.layers.size(); ++i) {
    if (made->plan_.layers[i].kind == LayerKind::kDense) {
      if (absl::Status s = made->CheckDense(i, weights); !s.ok()) return s;
    }
    if (absl::Status s = made->TakeVectors(i, weights); !s.ok()) return s;
  }
  made->ChooseTypes();
  if (absl::Status s = made->Pack(weights); !s.ok()) return s;
  *tower = std::move(made);
  return absl::OkStatus();
} catch (const std::bad_alloc&) {
  return absl::ResourceExhaustedError("no memory to pack the weights of a dense tower in");
}

size_t DenseTower::bytes() const {
  size_t bytes = panels_.size();
  for (const Dense& dense : dense_) {
    for (const Product& product : dense.products) {
      if (product.onednn != nullptr) bytes += product.onednn->bytes();
    }
  }
  return bytes;
}

}  // namespace processor
