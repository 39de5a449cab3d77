// SPDX-License-Identifier: Apache-2.0
#include "src/live/live_changes.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "src/live/finite_changes.h"

namespace processor {
namespace {

using tensorflow::Tensor;

std::string ShapeText(absl::Span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) absl::StrAppend(&text, i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

const char* KindName(DeltaKeyKind kind) {
  return kind == DeltaKeyKind::kRowNumber ? "row numbers" : kind == DeltaKeyKind::kInt64 ? "integers" : "strings";
}

// Whether a table has the rows of a variable of which all change.
bool IsOfRows(const LiveDescription::Table& table, const DeltaVariable& delta) {
  return table.source == delta.name && table.key_kind == DeltaKeyKind::kRowNumber;
}

size_t CountRows(const DeltaVariable& delta) { return delta.shape.empty() ? 0 : static_cast<size_t>(delta.shape[0]); }

}  // namespace

absl::Status LiveModel::CheckNumbers(const Changes& changes) const {
  if (permit_not_finite_) return absl::OkStatus();
  const auto check = [this](const char* kind, const auto& delta) {
    if (description().IsUnserved(delta.name)) return absl::OkStatus();
    return WithName(absl::StrCat(kind, " '", delta.name, "'"), CheckFinite(delta));
  };
  for (const DeltaTable& delta : changes.tables) {
    if (absl::Status s = check("table", delta); !s.ok()) return s;
  }
  for (const DeltaVariable& delta : changes.variables) {
    if (absl::Status s = check("variable", delta); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status LiveModel::ChangeTables(absl::Span<const DeltaTable> tables, EpochView* view,
                                     std::vector<bool>* changed_variables) {
  for (const DeltaTable& delta : tables) {
    bool known = false;
    const std::string name = absl::StrCat("table '", delta.name, "'");
    for (const LiveDescription::Table& table : description().tables) {
      if (table.source != delta.name) continue;
      known = true;
      if (delta.key_kind != table.key_kind || delta.dim != table.dim) {
        return DoesNotFit(name, ": rows of ", delta.dim, " by ", KindName(delta.key_kind), ", expected rows of ",
                          table.dim, " by ", KindName(table.key_kind));
      }
    }
    if (const int variable = description().VariableOf(delta.name);
        variable >= 0 && delta.key_kind == DeltaKeyKind::kRowNumber) {
      known = true;
      if (absl::Status s = ChangeRowsOfVariable(delta, variable, view); !s.ok()) return WithName(name, s);
      (*changed_variables)[variable] = true;
    }
    if (!known && !description().IsUnserved(delta.name)) {
      return DoesNotFit(name, ": not in the model, expected one of its tables");
    }
  }
  return absl::OkStatus();
}

absl::Status LiveModel::PrepareRows(const Changes& changes, PreparedRows* rows) {
  rows->of_tables.reserve(overlays_.size());
  for (const DeltaTable& delta : changes.tables) {
    for (size_t i = 0; i < overlays_.size(); ++i) {
      if (description().tables[i].source != delta.name) continue;
      if (!writes_[i]) {
        rows->of_others += delta.changed.count + delta.deleted.count + delta.default_numbers.size();
        continue;
      }
      auto& [overlay, change] = rows->of_tables.emplace_back(overlays_[i]->table().get(), OverlayTable::Change());
      if (absl::Status s = overlay->Prepare(delta, &change); !s.ok()) {
        return WithName(absl::StrCat("table '", delta.name, "'"), s);
      }
    }
  }
  for (const DeltaVariable& delta : changes.variables) {
    if (absl::Status s = PrepareAllRows(delta, rows); !s.ok()) {
      return WithName(absl::StrCat("variable '", delta.name, "'"), s);
    }
  }
  return absl::OkStatus();
}

absl::Status LiveModel::ValueOf(int variable, const EpochView& view, Tensor* value) {
  const Tensor* const changed = view.variable(variable);
  if (changed == nullptr) return parts_->formulas->Variable(variable, value);
  *value = *changed;
  return absl::OkStatus();
}

absl::Status LiveModel::ChangeRowsOfVariable(const DeltaTable& delta, int number, EpochView* view) {
  Tensor before;
  if (absl::Status s = ValueOf(number, *view, &before); !s.ok()) return s;
  const int64_t rows = before.dims() == 0 ? 0 : before.dim_size(0);
  if (rows == 0 || before.NumElements() / rows != delta.dim) {
    return DoesNotFit("rows of ", delta.dim, ", expected those of shape ", before.shape().DebugString());
  }
  auto changed = std::make_shared<Tensor>(tensorflow::DT_FLOAT, before.shape());
  std::memcpy(changed->data(), before.data(), before.TotalBytes());
  for (size_t i = 0; i < delta.changed.count; ++i) {
    const int64_t row = delta.changed.integers[i];
    if (row < 0 || row >= rows) return DoesNotFit("row ", row, ", expected one of ", rows);
    const float* const values = delta.rows + i * delta.dim;
    std::copy_n(values, delta.dim, changed->flat<float>().data() + row * delta.dim);
  }
  view->variables_[number] = std::move(changed);
  return absl::OkStatus();
}

absl::Status LiveModel::CheckAllRows(const DeltaVariable& delta, bool* known) const {
  const size_t count = CountRows(delta);
  size_t dim = 1;
  for (size_t i = 1; i < delta.shape.size(); ++i) dim *= static_cast<size_t>(delta.shape[i]);
  for (const LiveDescription::Table& table : description().tables) {
    if (!IsOfRows(table, delta)) continue;
    *known = true;
    const int64_t expected = table.rows.num_rows;
    if (dim != table.dim || (expected >= 0 && count != static_cast<size_t>(expected))) {
      return DoesNotFit("shape ", ShapeText(delta.shape), ", expected ",
                        expected >= 0 ? absl::StrCat(expected, " ") : "", "rows of ", table.dim);
    }
  }
  return absl::OkStatus();
}

absl::Status LiveModel::PrepareAllRows(const DeltaVariable& delta, PreparedRows* rows) {
  const size_t count = CountRows(delta);
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < overlays_.size(); ++i) {
    const LiveDescription::Table& table = description().tables[i];
    if (!IsOfRows(table, delta)) continue;
    for (const auto& [overlay, change] : rows->of_tables) {
      if (overlay == overlays_[i]->table().get()) {
        return DoesNotFit("rows of it change in the same segment, expected all or some");
      }
    }
    if (numbers.empty()) {
      numbers.resize(count);
      std::iota(numbers.begin(), numbers.end(), 0);
    }
    DeltaTable all;
    all.name = delta.name;
    all.key_kind = all.changed.kind = DeltaKeyKind::kRowNumber;
    all.dim = table.dim;
    all.changed.count = count;
    all.changed.integers = numbers.data();
    all.rows = delta.data;
    if (!writes_[i]) {
      rows->of_others += count;
      continue;
    }
    auto& [overlay, change] = rows->of_tables.emplace_back(overlays_[i]->table().get(), OverlayTable::Change());
    if (absl::Status s = overlay->Prepare(all, &change); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status LiveModel::ChangeVariables(absl::Span<const DeltaVariable> variables, EpochView* view,
                                        std::vector<bool>* changed_variables) {
  for (const DeltaVariable& delta : variables) {
    const int number = description().VariableOf(delta.name);
    const std::string name = absl::StrCat("variable '", delta.name, "'");
    bool known = description().IsUnserved(delta.name);
    if (absl::Status s = CheckAllRows(delta, &known); !s.ok()) return WithName(name, s);
    if (number < 0 && known) continue;
    if (number < 0) return DoesNotFit(name, ": not in the model, expected one of its variables");
    const std::vector<int64_t>& expected = description().variables[number].shape;
    if (delta.shape != expected) {
      return DoesNotFit(name, ": shape ", ShapeText(delta.shape), ", expected ", ShapeText(expected));
    }
    auto value = std::make_shared<Tensor>(tensorflow::DT_FLOAT, tensorflow::TensorShape(delta.shape));
    const int64_t elements = value->NumElements();
    std::copy_n(delta.data, elements, value->flat<float>().data());
    view->variables_[number] = std::move(value);
    (*changed_variables)[number] = true;
  }
  return absl::OkStatus();
}

absl::Status LiveModel::ComputeFormulas(const std::vector<bool>& changed_variables, EpochView* view,
                                        std::vector<bool>* changed_formulas) {
  for (size_t i = 0; i < description().formulas.size(); ++i) {
    const LiveDescription::Formula& formula = description().formulas[i];
    const auto changed = [&](int input) { return changed_variables[input]; };
    if (std::none_of(formula.inputs.begin(), formula.inputs.end(), changed)) continue;
    std::vector<FormulaGraph::Feed> feeds;
    for (const int input : formula.inputs) {
      if (const Tensor* value = view->variable(input)) feeds.push_back({input, *value});
    }
    Tensor value;
    absl::Status status = parts_->formulas->Formula(static_cast<int>(i), feeds, &value);
    if (!status.ok()) return status;
    view->formulas_[i] = std::make_shared<const Tensor>(std::move(value));
    (*changed_formulas)[i] = true;
  }
  return absl::OkStatus();
}

}  // namespace processor
