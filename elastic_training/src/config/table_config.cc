// SPDX-License-Identifier: Apache-2.0
#include "src/config/table_config.h"

#include <stdexcept>

#include "src/config/json_fields.h"

namespace elastic_training {

TableConfig TableConfig::Parse(const std::string& text) {
  const nlohmann::json object = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (object.is_discarded())
    throw std::invalid_argument("table: the configuration is not JSON: " + text.substr(0, 200));
  TableConfig config;
  config.name = JsonFields("table", object).Text("name", "", {});
  const JsonFields fields("table '" + config.name + "'", object);
  fields.RefuseOthers({"version", "name", "key", "dim", "seed", "initializer", "default", "optimizer", "admission",
                       "eviction", "stop_on_nan", "tiers"});
  fields.Integer("version", 1, 1, 1);
  config.string_keys = fields.Text("key", "int64", {"int64", "string"}) == "string";
  config.dim = fields.Integer("dim", 0, 1, kMaxDim);
  if (config.dim == 0) throw std::invalid_argument(fields.name() + ": dim is missing");
  config.seed = fields.Integer("seed", 0, INT64_MIN, INT64_MAX);
  config.stop_on_nan = fields.Flag("stop_on_nan", false);
  const nlohmann::json absent = fields.Object("default");
  const JsonFields default_fields(fields.name() + " default", absent);
  default_fields.RefuseOthers({"kind", "value"});
  if (default_fields.Text("kind", "zeros", {"zeros", "constant"}) == "constant") {
    config.default_value = static_cast<float>(default_fields.Number("value", 0, -1e30, 1e30));
  }
  config.initializer = fields.Object("initializer");
  config.optimizer = fields.Object("optimizer");
  config.admission = fields.Object("admission");
  config.eviction = fields.Object("eviction");
  const nlohmann::json tiers = fields.Object("tiers");
  if (!tiers.empty()) {
    const JsonFields tier_fields(fields.name() + " tiers", tiers);
    tier_fields.RefuseOthers({"memory", "ssd", "ssd_limit"});
    config.tiers.enabled = true;
    config.tiers.memory_bytes = static_cast<uint64_t>(tier_fields.Integer("memory", 0, 1 << 20, int64_t{1} << 60));
    config.tiers.folder = tier_fields.Text("ssd", "", {});
    if (config.tiers.folder.empty()) throw std::invalid_argument(tier_fields.name() + ": ssd is missing");
    config.tiers.ssd_bytes = static_cast<uint64_t>(tier_fields.Integer("ssd_limit", INT64_MAX, 1 << 20, INT64_MAX));
  }
  return config;
}

}  // namespace elastic_training
