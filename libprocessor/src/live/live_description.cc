// SPDX-License-Identifier: Apache-2.0
#include "src/live/live_description.h"

#include <algorithm>
#include <cstring>
#include <filesystem>
#include <limits>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "src/base/json_value.h"
#include "tensorflow/core/platform/env.h"

namespace processor {
namespace {

constexpr int64_t kMostNumber = std::numeric_limits<int64_t>::max();
// Lists are as long as the model has tables and weights.
constexpr size_t kMostItems = 1 << 20;

template <size_t size>
void ReadHex(const JsonValue& value, std::array<uint8_t, size>* bytes) {
  std::string text, decoded;
  value.String(&text);
  if (!value.present()) return;
  if (text.size() == 2 * size && absl::HexStringToBytes(text, &decoded)) {
    std::memcpy(bytes->data(), decoded.data(), size);
  } else {
    value.Refuse(absl::StrCat(2 * size, " hexadecimal digits"));
  }
}

// The rows of the source, one int64 for each row of the file.
absl::Status ReadRows(const std::filesystem::path& path, std::vector<int64_t>* rows) {
  std::string bytes;
  absl::Status status = tensorflow::ReadFileToString(tensorflow::Env::Default(), path.string(), &bytes);
  if (status.ok() && bytes.size() % sizeof(int64_t) != 0) {
    status = absl::DataLossError(absl::StrCat(bytes.size(), " bytes, expected a multiple of 8"));
  }
  if (!status.ok()) return absl::Status(status.code(), absl::StrCat("rows '", path.string(), "': ", status.message()));
  rows->resize(bytes.size() / sizeof(int64_t));
  std::memcpy(rows->data(), bytes.data(), bytes.size());
  return absl::OkStatus();
}

void ReadTable(const JsonValue& item, const std::filesystem::path& folder, LiveDescription::Table* table) {
  int kind = 1;
  int64_t dim = 0;
  item.Required("source", "a name").String(&table->source, true);
  item.Required("key_kind", "a kind").Choice({"row_number", "int64", "string"}, &kind);
  item.Required("dim", "a number").Integer(1, std::numeric_limits<int32_t>::max(), &dim);
  item.Member("first_row").Integer(0, kMostNumber, &table->rows.first_row);
  item.Member("source_rows").Integer(0, kMostNumber, &table->rows.num_rows);
  table->key_kind = static_cast<DeltaKeyKind>(kind);
  table->dim = static_cast<uint32_t>(dim);
  const JsonValue rows = item.Member("rows");
  if (!rows.present() || rows.json() == "same") return;
  std::string asset;
  rows.Required("asset", "\"same\" or an asset").String(&asset, true);
  rows.Check([&] { return ReadRows(folder / std::filesystem::path(asset).filename(), &table->rows.rows); });
}

}  // namespace

int LiveDescription::FormulaOf(const std::string& name) const {
  const auto it = std::find_if(formulas.begin(), formulas.end(), [&](const Formula& f) { return f.name == name; });
  return it == formulas.end() ? -1 : static_cast<int>(it - formulas.begin());
}

int LiveDescription::VariableOf(std::string_view source) const {
  const auto it =
      std::find_if(variables.begin(), variables.end(), [&](const Variable& v) { return v.source == source; });
  return it == variables.end() ? -1 : static_cast<int>(it - variables.begin());
}

bool LiveDescription::IsUnserved(std::string_view source) const {
  return std::find(unserved.begin(), unserved.end(), source) != unserved.end();
}

absl::Status ReadLiveDescription(const std::string& path, LiveDescription* description) {
  std::string text;
  absl::Status status = tensorflow::ReadFileToString(tensorflow::Env::Default(), path, &text);
  if (!status.ok()) return absl::Status(status.code(), absl::StrCat("live model '", path, "': ", status.message()));
  nlohmann::json object;
  const std::string name = absl::StrCat("live model '", path, "'");
  if (status = ParseJson(name, text, &object); !status.ok()) return status;
  const JsonValue live(name, object, &status);
  int schema = 0;
  int64_t epoch = 0;
  live.Required("schema", "live/1").Choice({"live/1"}, &schema);
  ReadHex(live.Required("lineage", "digits"), &description->lineage);
  ReadHex(live.Required("chain", "digits"), &description->chain);
  live.Required("epoch", "a number").Integer(0, kMostNumber, &epoch);
  description->epoch = static_cast<uint64_t>(epoch);
  const JsonValue tables = live.Required("tables", "a list"), variables = live.Required("variables", "a list"),
                  formulas = live.Required("formulas", "a list");
  for (const JsonValue& list : {tables, variables, formulas}) list.List(kMostItems);
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  tables.ForEachItem([&](const JsonValue& item) { ReadTable(item, folder, &description->tables.emplace_back()); });
  variables.ForEachItem([&](const JsonValue& item) {
    LiveDescription::Variable& variable = description->variables.emplace_back();
    item.Required("source", "a name").String(&variable.source, true);
    const JsonValue shape = item.Required("shape", "a list");
    shape.List(8);
    shape.ForEachItem([&](const JsonValue& size) { size.Integer(0, kMostNumber, &variable.shape.emplace_back()); });
  });
  formulas.ForEachItem([&](const JsonValue& item) {
    LiveDescription::Formula& formula = description->formulas.emplace_back();
    item.Required("name", "a name").String(&formula.name, true);
    const JsonValue inputs = item.Required("inputs", "a list");
    inputs.List(kMostItems);
    inputs.ForEachItem([&](const JsonValue& input) {
      input.Integer(0, static_cast<int64_t>(description->variables.size()) - 1, &formula.inputs.emplace_back());
    });
  });
  const JsonValue unserved = live.Member("unserved");
  unserved.List(kMostItems);
  unserved.ForEachItem([&](const JsonValue& name) { name.String(&description->unserved.emplace_back(), true); });
  return status;
}

}  // namespace processor
