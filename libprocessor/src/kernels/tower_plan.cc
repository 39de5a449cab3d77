// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/tower_plan.h"

#include <cfloat>
#include <string>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "src/kernels/json_fields.h"

namespace processor {
namespace {

constexpr size_t kMaxLayers = 4096;
constexpr size_t kMaxValues = 1024;

struct Limits {
  int inputs;
  int weights;
};

class PlanReader {
 public:
  explicit PlanReader(Limits limits) : limits_(limits) {}

  TowerLayer ReadLayer(const JsonValue& value, int number) {
    JsonFields fields(value);
    TowerLayer layer;
    layer.kind = static_cast<LayerKind>(
        fields.Choice("op", {"dense", "affine", "add", "multiply", "concat", "layer_norm", "mix"}));
    layer.inputs = ReadValues("inputs", number, &fields);
    if (layer.inputs.empty()) fields.Refuse("no inputs", "at least one");
    switch (layer.kind) {
      case LayerKind::kDense:
        ReadDense(number, &layer, &fields);
        break;
      case LayerKind::kAffine:
        ExpectOneInput(layer, &fields);
        layer.scale = ReadWeight("scale", &fields);
        layer.shift = ReadWeight("shift", &fields);
        break;
      case LayerKind::kLayerNorm:
        ExpectOneInput(layer, &fields);
        layer.gamma = ReadWeight("gamma", &fields);
        layer.beta = ReadWeight("beta", &fields);
        layer.epsilon = static_cast<float>(fields.Number("epsilon", 0, 1e6, -1));
        if (!(layer.epsilon > 0)) fields.Field("epsilon").Refuse("a number above 0");
        break;
      case LayerKind::kMix:
        if (layer.inputs.size() < 2) fields.Refuse("mix of one input", "a gate and at least one more");
        break;
      case LayerKind::kAdd:
      case LayerKind::kMultiply:
      case LayerKind::kConcat:
        break;
    }
    if (layer.kind != LayerKind::kLayerNorm) {
      if (const JsonValue activation = fields.Field("activation"); activation.present()) {
        layer.activation = ReadActivation(activation);
      }
    }
    fields.Finish();
    return layer;
  }

  std::vector<TowerValue> ReadValues(const char* field, int layers, JsonFields* fields) {
    std::vector<TowerValue> values;
    const JsonValue list = fields->List(field, kMaxValues);
    for (size_t i = 0; i < list.size(); ++i) values.push_back(ReadValue(list.Item(i), layers));
    return values;
  }

 private:
  // A letter and a number without leading zeros, below that of the layer that asks.
  TowerValue ReadValue(const JsonValue& value, int layers) const {
    TowerValue read;
    const std::string text = value.json().is_string() ? value.json().get<std::string>() : std::string();
    const bool is_layer = !text.empty() && text[0] == 'h';
    int number = 0;
    if (text.size() > 1 && (is_layer || text[0] == 'x') && absl::SimpleAtoi(text.substr(1), &number) && number >= 0 &&
        number < (is_layer ? layers : limits_.inputs) && absl::StrCat(number) == text.substr(1)) {
      read.is_layer = is_layer;
      read.number = number;
      return read;
    }
    value.Refuse(absl::StrCat("x and a number below ", limits_.inputs, " or h and one below ", layers));
    return read;
  }

  int ReadWeight(const char* field, JsonFields* fields) {
    return static_cast<int>(fields->Int(field, 0, limits_.weights - 1, -1));
  }

  void ReadDense(int number, TowerLayer* layer, JsonFields* fields) {
    const JsonValue weights = fields->List("weights", kMaxValues);
    for (size_t i = 0; i < weights.size(); ++i) {
      layer->weights.push_back(static_cast<int>(IntItem(weights.Item(i), 0, limits_.weights - 1)));
    }
    if (layer->weights.size() != layer->inputs.size()) {
      fields->Refuse(absl::StrCat(layer->weights.size(), " weights for ", layer->inputs.size(), " inputs"), "one each");
    }
    layer->transposed = fields->Bool("transpose", false);
    layer->bias = ReadWeight("bias", fields);
    if (fields->Has("precision")) {
      layer->precision = static_cast<LayerPrecision>(1 + fields->Choice("precision", {"fp32", "bf16"}));
    }
    if (fields->Has("add")) layer->add = ReadValues("add", number, fields);
  }

  Activation ReadActivation(const JsonValue& value) {
    JsonFields fields(value);
    Activation activation;
    // In the order of ActivationKind, without its first.
    activation.kind = static_cast<ActivationKind>(
        1 + fields.Choice("kind", {"relu", "relu6", "leaky_relu", "elu", "selu", "sigmoid", "tanh", "gelu", "gelu_tanh",
                                   "swish", "softplus", "softmax", "prelu", "dice"}));
    const bool dice = activation.kind == ActivationKind::kDice;
    if (activation.kind == ActivationKind::kRelu || activation.kind == ActivationKind::kRelu6) {
      activation.onednn = fields.Bool("onednn", false);
    }
    if (activation.kind == ActivationKind::kLeakyRelu) {
      if (!fields.Has("alpha")) fields.Field("alpha").Refuse("a number");
      activation.alpha = static_cast<float>(fields.Number("alpha", -FLT_MAX, FLT_MAX, 0));
    }
    if (dice || activation.kind == ActivationKind::kPrelu) activation.weight = RequireWeight("weight", &fields);
    if (dice) {
      activation.scale = RequireWeight("scale", &fields);
      activation.shift = RequireWeight("shift", &fields);
    }
    fields.Finish();
    return activation;
  }

  int RequireWeight(const char* field, JsonFields* fields) {
    return static_cast<int>(fields->Int(field, 0, limits_.weights - 1));
  }

  static void ExpectOneInput(const TowerLayer& layer, JsonFields* fields) {
    if (layer.inputs.size() != 1) {
      fields->Refuse(absl::StrCat(LayerKindName(layer.kind), " of ", layer.inputs.size(), " inputs"), "one");
    }
  }

  const Limits limits_;
};

}  // namespace

absl::Status ParseTowerPlan(std::string_view text, int num_inputs, int num_weights, int num_outputs, TowerPlan* plan) {
  nlohmann::json object;
  if (absl::Status s = ParsePlan(text, "tower plan", &object); !s.ok()) return s;
  absl::Status status;
  JsonFields fields(JsonValue("tower plan: ", object, &status));
  fields.Int("version", 1, 1);
  PlanReader reader({num_inputs, num_weights});
  TowerPlan read;
  const JsonValue layers = fields.List("layers", kMaxLayers);
  for (size_t i = 0; i < layers.size(); ++i) {
    read.layers.push_back(reader.ReadLayer(layers.Item(i), static_cast<int>(i)));
  }
  read.outputs = reader.ReadValues("outputs", static_cast<int>(read.layers.size()), &fields);
  if (read.outputs.size() != static_cast<size_t>(num_outputs)) {
    fields.Field("outputs").Fault(
        absl::StrCat(read.outputs.size(), " outputs, expected ", num_outputs, ", as the op has"));
  }
  fields.Finish();
  if (status.ok()) *plan = std::move(read);
  return status;
}

const char* LayerKindName(LayerKind kind) {
  switch (kind) {
    case LayerKind::kDense:
      return "dense";
    case LayerKind::kAffine:
      return "affine";
    case LayerKind::kAdd:
      return "add";
    case LayerKind::kMultiply:
      return "multiply";
    case LayerKind::kConcat:
      return "concat";
    case LayerKind::kLayerNorm:
      return "layer_norm";
    case LayerKind::kMix:
      return "mix";
  }
  return "";
}

std::string TowerValueName(const TowerValue& value) { return absl::StrCat(value.is_layer ? "h" : "x", value.number); }

}  // namespace processor
