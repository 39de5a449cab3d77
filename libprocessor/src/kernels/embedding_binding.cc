// SPDX-License-Identifier: Apache-2.0
#include "src/kernels/embedding_binding.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/kernels/widen_rows.h"

namespace processor {
namespace {

template <typename... Found>
absl::Status WrongColumn(int column, const Found&... found) {
  return absl::InvalidArgumentError(absl::StrCat("embedding group: column ", column, ": ", found...));
}

bool SideBySide(const EmbeddingPlan& plan, const PlanColumn& column) {
  return column.kind == ColumnKind::kLookup && column.combiner == Combiner::kNone &&
         plan.outputs[column.output].sequence < 0;
}

// What has been said of the columns of an output.
enum Cell : uint8_t { kUntouched = 0, kAddedTo = 1, kWritten = 2 };

}  // namespace

absl::Status EmbeddingBinding::Make(const EmbeddingPlan& plan, absl::Span<const KeySteps> steps,
                                    std::vector<Table> tables, const EmbeddingRequest& request,
                                    std::shared_ptr<const EmbeddingBinding>* binding) {
  std::shared_ptr<EmbeddingBinding> made(new EmbeddingBinding());
  made->tables_ = std::move(tables);
  for (size_t i = 0; i < plan.columns.size(); ++i) {
    if (absl::Status added = made->AddColumn(plan, steps, static_cast<int>(i)); !added.ok()) return added;
  }
  made->SortLookups();
  if (absl::Status covered = made->Cover(plan, request); !covered.ok()) return covered;
  *binding = std::move(made);
  return absl::OkStatus();
}

absl::Status EmbeddingBinding::AddLookup(absl::Span<const KeySteps> steps, int number, const PlanFactor& wanted,
                                         const PlanColumn* empty, int* lookup) {
  const EmbeddingTable& table = *tables_[wanted.table].table;
  const bool strings = steps[wanted.key].gives_strings();
  if (strings != (table.index_kind() == IndexKind::kString)) {
    return WrongColumn(number, "key ", wanted.key, " gives ", strings ? "strings" : "numbers", ", expected ",
                       strings ? "numbers" : "strings", " for table ", table.path());
  }
  const Lookup made{wanted.key, &table, tables_[wanted.table].live, empty};
  const auto same = std::find_if(lookups_.begin(), lookups_.end(), [&](const Lookup& other) {
    return other.key == made.key && other.table == made.table && other.live == made.live && other.empty == nullptr;
  });
  *lookup = static_cast<int>(same - lookups_.begin());
  // One with a row for those without a value is not shared: it may stand in the list of rows.
  if (same == lookups_.end() || empty != nullptr) {
    *lookup = static_cast<int>(lookups_.size());
    lookups_.push_back(made);
  }
  has_tiered_ |= table.tiered() != nullptr;
  copies_rows_ |= table.copies_rows();
  return absl::OkStatus();
}

absl::Status EmbeddingBinding::AddColumn(const EmbeddingPlan& plan, absl::Span<const KeySteps> steps, int number) {
  const PlanColumn& planned = plan.columns[number];
  Column column{&planned, -1, {}, 0, nullptr, nullptr, nullptr, {}};
  if (planned.kind == ColumnKind::kLookup) {
    absl::Status added =
        AddLookup(steps, number, {planned.key, planned.table}, planned.has_empty ? &planned : nullptr, &column.lookup);
    if (added.ok() && planned.has_empty) added = CheckEmptyKey(planned, number);
    if (!added.ok()) return added;
    const RowKernels& kernels = BestRowKernels();
    const auto source_of = [&](int of) {
      const EmbeddingTable& table = *tables_[of].table;
      return RowSource{tables_[of].rows, CopiedRowStride(table), table.dim()};
    };
    const auto bytes_of = [&](const EmbeddingTable& table) {
      return static_cast<uint32_t>(RowBytes(CopiedRowType(table), table.dim()));
    };
    const EmbeddingTable& table = *tables_[planned.table].table;
    column.source = source_of(planned.table);
    column.row_bytes = bytes_of(table);
    column.copy_first = kernels.copy[static_cast<int>(CopiedRowType(table))];
    // A product is made of floats before it is copied or pooled.
    const int type = static_cast<int>(planned.factors.empty() ? CopiedRowType(table) : RowType::kFloat32);
    column.copy = planned.accumulate ? kernels.add[type] : kernels.copy[type];
    column.pool = planned.accumulate ? kernels.add_pooled[type] : kernels.pool[type];
    for (const PlanFactor& wanted : planned.factors) {
      const EmbeddingTable& other = *tables_[wanted.table].table;
      if (other.dim() != table.dim()) {
        return WrongColumn(number, "factor with rows of ", other.dim(), " elements from table ", other.path(),
                           ", expected ", table.dim());
      }
      Factor factor{-1, source_of(wanted.table), bytes_of(other),
                    kernels.multiply[static_cast<int>(CopiedRowType(other))]};
      if (added = AddLookup(steps, number, wanted, nullptr, &factor.lookup); !added.ok()) return added;
      column.factors.push_back(factor);
    }
  }
  columns_.push_back(std::move(column));
  return absl::OkStatus();
}

absl::Status EmbeddingBinding::CheckEmptyKey(const PlanColumn& column, int number) const {
  const EmbeddingTable& table = *tables_[column.table].table;
  if (column.empty_is_string == (table.index_kind() == IndexKind::kString)) return absl::OkStatus();
  return WrongColumn(number, "'empty' is not a key of table ", table.path(), ", expected a ",
                     column.empty_is_string ? "number" : "string");
}

absl::Status EmbeddingBinding::FindEmptyRows(const EpochView* view, std::vector<uint32_t>* rows) const {
  rows->resize(lookups_.size());
  for (size_t l = 0; l < lookups_.size(); ++l) {
    uint32_t& row = (*rows)[l];
    row = kNoRow;
    const PlanColumn* const column = lookups_[l].empty;
    if (column == nullptr) continue;
    const tensorflow::tstring text(column->empty_string);
    const auto find = [&](const auto& table) {
      if (column->empty_is_string) {
        table.FindRows(absl::MakeConstSpan(&text, 1), &row);
      } else {
        table.FindRows(absl::MakeConstSpan(&column->empty_integer, 1), &row);
      }
    };
    lookups_[l].live < 0 ? find(*lookups_[l].table) : find(view->table(lookups_[l].live));
    if (row != kRefusedRow) continue;
    const auto number =
        std::find_if(columns_.begin(), columns_.end(), [&](const Column& c) { return c.plan == column; }) -
        columns_.begin();
    return WrongColumn(static_cast<int>(number), "the key 'empty' is not in table ", lookups_[l].table->path(),
                       ", expected a key of the table");
  }
  return absl::OkStatus();
}

// By key, so that a key is computed once for all its lookups.
void EmbeddingBinding::SortLookups() {
  std::vector<int> order(lookups_.size()), place(lookups_.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return lookups_[a].key < lookups_[b].key; });
  std::vector<Lookup> sorted;
  for (size_t i = 0; i < order.size(); ++i) {
    place[order[i]] = static_cast<int>(i);
    sorted.push_back(lookups_[order[i]]);
  }
  lookups_ = std::move(sorted);
  for (Column& column : columns_) {
    if (column.lookup >= 0) column.lookup = place[column.lookup];
    for (Factor& factor : column.factors) factor.lookup = place[factor.lookup];
  }
}

absl::Status EmbeddingBinding::Cover(const EmbeddingPlan& plan, const EmbeddingRequest& request) {
  std::vector<std::vector<uint8_t>> cells;
  for (const PlanOutput& output : plan.outputs) cells.emplace_back(output.width, kUntouched);
  for (size_t i = 0; i < columns_.size(); ++i) {
    const PlanColumn& column = *columns_[i].plan;
    int64_t width = column.kind == ColumnKind::kLookup ? int64_t{columns_[i].source.dim} : column.width;
    const int64_t room = plan.outputs[column.output].width - column.offset;
    if (SideBySide(plan, column)) {
      const int64_t values = request.keys[column.key].per_row;
      side_by_side_.emplace_back(column.key, values);
      // A feature of no rows may have any shape; a product beyond int64 does not fit either.
      width = values > room ? room + 1 : values * width;
    }
    if (width > room) {
      return WrongColumn(static_cast<int>(i), width, " columns or more from ", column.offset, ", expected none beyond ",
                         plan.outputs[column.output].width);
    }
    const auto begin = cells[column.output].begin() + column.offset, end = begin + width;
    if (!column.accumulate && std::any_of(begin, end, [](uint8_t cell) { return cell != kUntouched; })) {
      return WrongColumn(static_cast<int>(i), "writes over another column, expected it to accumulate or to lie apart");
    }
    for (auto cell = begin; cell != end; ++cell)
      *cell = std::max<uint8_t>(*cell, column.accumulate ? kAddedTo : kWritten);
  }
  for (size_t o = 0; o < cells.size(); ++o) {
    const auto is_gap = [](uint8_t cell) { return cell != kWritten; };
    for (auto it = cells[o].begin(); (it = std::find_if(it, cells[o].end(), is_gap)) != cells[o].end();) {
      const auto end = std::find(it, cells[o].end(), kWritten);
      gaps_.push_back({static_cast<int>(o), it - cells[o].begin(), end - it});
      it = end;
    }
  }
  std::sort(side_by_side_.begin(), side_by_side_.end());
  side_by_side_.erase(std::unique(side_by_side_.begin(), side_by_side_.end()), side_by_side_.end());
  return absl::OkStatus();
}

}  // namespace processor
