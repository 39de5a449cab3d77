// SPDX-License-Identifier: Apache-2.0
#include "src/live/live_model.h"

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <new>
#include <numeric>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/thread_number.h"
#include "src/tables/delta_timeline.h"

namespace processor {
namespace {

using tensorflow::Tensor;

absl::Status WithName(const std::string& name, const absl::Status& status) {
  return status.ok() ? status : absl::Status(status.code(), absl::StrCat(name, ": ", status.message()));
}

template <typename... Parts>
absl::Status DoesNotFit(const Parts&... parts) {
  return absl::InvalidArgumentError(absl::StrCat(parts...));
}

std::string ShapeText(absl::Span<const int64_t> shape) {
  std::string text = "[";
  for (size_t i = 0; i < shape.size(); ++i) absl::StrAppend(&text, i == 0 ? "" : ", ", shape[i]);
  return text + "]";
}

// The first number that is neither finite nor permitted, or -1.
int64_t FirstNonNumber(const float* values, int64_t n) {
  for (int64_t i = 0; i < n; ++i) {
    if (!std::isfinite(values[i])) return i;
  }
  return -1;
}

const char* KindName(DeltaKeyKind kind) {
  return kind == DeltaKeyKind::kRowNumber ? "row numbers" : kind == DeltaKeyKind::kInt64 ? "integers" : "strings";
}

}  // namespace

struct LiveModel::PreparedRows {
  std::vector<std::pair<OverlayTable*, OverlayTable::Change>> of_tables;
  ~PreparedRows() {
    for (auto& [overlay, change] : of_tables) overlay->Abandon(&change);
  }
};

absl::Status LiveModel::Create(LiveDescription description, std::vector<std::shared_ptr<const EmbeddingTable>> tables,
                               const std::vector<std::string>& names, std::unique_ptr<FormulaGraph> formulas,
                               tensorflow::core::RefCountPtr<LiveModel>* model) {
  if (tables.size() != description.tables.size()) {
    return DoesNotFit("live model: ", tables.size(), " tables, expected ", description.tables.size(),
                      " as the description has");
  }
  tensorflow::core::RefCountPtr<LiveModel> made(new LiveModel());
  made->parts_ = std::make_shared<LiveParts>();
  made->parts_->formulas = std::move(formulas);
  std::shared_ptr<EpochView> view(new EpochView(made->parts_));
  for (size_t i = 0; i < tables.size(); ++i) {
    const LiveDescription::Table& table = description.tables[i];
    if (tables[i]->dim() != table.dim) {
      return DoesNotFit("live model: table '", tables[i]->path(), "' has rows of ", tables[i]->dim(), ", expected ",
                        table.dim, " as '", table.source, "' has");
    }
    std::unique_ptr<OverlayTable> overlay;
    absl::Status status = OverlayTable::Create(tables[i], table.key_kind, table.rows, &overlay);
    if (!status.ok()) return WithName(absl::StrCat("live model: '", table.source, "'"), status);
    made->overlays_.push_back(std::move(overlay));
    made->parts_->tables.emplace(names[i], static_cast<int>(i));
    view->tables_.emplace_back(made->overlays_.back(), 0);
  }
  view->facts_.epoch = description.epoch;
  view->facts_.chain = description.chain;
  view->formulas_.resize(description.formulas.size());
  view->variables_.resize(description.variables.size());
  made->parts_->description = std::move(description);
  made->kept_.push_back(view);
  made->Serve(std::move(view));
  *model = std::move(made);
  return absl::OkStatus();
}

Tensor LiveModel::Pin() const { return published_.Read()->tensors[ThreadNumber() % ViewTensors::kParts]; }

void LiveModel::Serve(std::shared_ptr<const EpochView> view) {
  const auto holder = std::make_shared<const std::shared_ptr<const EpochView>>(view);
  auto tensors = std::make_shared<ViewTensors>();
  for (Tensor& tensor : tensors->tensors) tensor = MakeViewTensor({holder, view.get()});
  generations_.reserve(generations_.size() + 1);
  published_.Exchange(std::move(tensors));
  generations_.push_back({generations_.empty() ? 1 : generations_.back().number + 1, holder});
  served_ = std::move(view);
}

absl::Status LiveModel::Follows(const Changes& changes) const {
  const DeltaHeader& header = changes.header;
  const EpochFacts& newest = kept_.back()->facts();
  absl::Status status =
      CheckContinues(header, changes.chains, {description().lineage, newest.epoch, newest.chain, newest.term});
  if (!status.ok()) return status;
  if (header.last_epoch - description().epoch > kMostOverlayEpochs) {
    return absl::FailedPreconditionError(absl::StrCat("epoch ", header.last_epoch, ", expected at most ",
                                                      kMostOverlayEpochs, " after that of the artifact"));
  }
  if (held_) {
    return absl::FailedPreconditionError(
        absl::StrCat("the model is held at epoch ", served_->facts().epoch, " by a roll-back, expected it to follow"));
  }
  return absl::OkStatus();
}

absl::Status LiveModel::Apply(const DeltaSegment& segment) {
  return Apply({absl::StrCat("segment '", segment.path(), "'"), segment.header(), segment.tables(), segment.variables(),
                segment.chains()});
}

absl::Status LiveModel::Apply(const Changes& changes) {
  std::lock_guard<std::mutex> lock(mutex_);
  absl::Status status;
  try {
    status = ApplyChecked(changes);
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError("no memory for the changes");
  }
  return WithName(changes.name, status);
}

OverlayTable::Readers LiveModel::FindReaders() {
  const auto unused = [](const Generation& generation) { return generation.view.use_count() == 1; };
  generations_.erase(std::remove_if(generations_.begin(), generations_.end(), unused), generations_.end());
  // What requests have read happens before what is written to the rows that they leave.
  std::atomic_thread_fence(std::memory_order_acquire);
  uint64_t oldest = kept_.front()->facts().epoch;
  for (const Generation& generation : generations_) oldest = std::min(oldest, (*generation.view)->facts().epoch);
  return {static_cast<uint32_t>(oldest - description().epoch), generations_.back().number, generations_.front().number};
}

bool LiveModel::Compact(std::chrono::microseconds most) {
  const auto until = std::chrono::steady_clock::now() + most;
  std::lock_guard<std::mutex> lock(mutex_);
  const OverlayTable::Readers readers = FindReaders();
  bool more = false, retired = false;
  for (const auto& overlay : overlays_) {
    overlay->SetReaders(readers);
    more = more || overlay->Compact(until);
    retired = retired || overlay->HasRetired();
  }
  try {
    // From now on, requests do not find what was replaced; when those before have ended, it is used again.
    if (retired && generations_.size() == 1) Serve(served_);
  } catch (const std::bad_alloc&) {
    return false;  // another time
  }
  return more;
}

absl::Status LiveModel::ApplyChecked(const Changes& changes) {
  const DeltaHeader& header = changes.header;
  if (absl::Status s = Follows(changes); !s.ok()) return s;
  const uint64_t first = description().epoch;
  const OverlayTable::Readers readers = FindReaders();
  for (const auto& overlay : overlays_) {
    overlay->SetReaders(readers);
    // Without idle time, memory must not grow for ever.
    if (overlay->uncompacted_epochs() > kKeptEpochs) overlay->Compact(std::chrono::steady_clock::time_point::max());
  }

  const EpochView& before = *kept_.back();
  std::shared_ptr<EpochView> view(new EpochView(parts_));
  view->precision_ = precision_;
  view->facts_ = {header.last_epoch, header.chain, header.term, header.event_time, header.write_time};
  view->formulas_ = before.formulas_;
  view->variables_ = before.variables_;
  std::vector<bool> changed_variables(view->variables_.size()), changed_formulas(view->formulas_.size());
  PreparedRows rows;
  absl::Status status = ChangeTables(changes.tables, view.get(), &changed_variables, &rows);
  if (status.ok()) status = ChangeVariables(changes.variables, view.get(), &changed_variables, &rows);
  if (status.ok()) status = ComputeFormulas(changed_variables, view.get(), &changed_formulas);
  if (status.ok()) status = view->PrepareWeights(before, changed_formulas);
  if (!status.ok()) return status;
  view->tables_.reserve(overlays_.size());
  kept_.push_back(view);
  // Nothing fails from here on, apart from memory for a few bytes.
  const auto epoch = static_cast<uint32_t>(header.last_epoch - first);
  for (auto& [overlay, change] : rows.of_tables) {
    applied_rows_ += change.num_rows();
    overlay->Commit(epoch, &change);
  }
  for (const auto& overlay : overlays_) view->tables_.emplace_back(overlay, epoch);
  Serve(std::move(view));
  if (kept_.size() > kKeptEpochs + 1) kept_.pop_front();
  return absl::OkStatus();
}

absl::Status LiveModel::ChangeTables(absl::Span<const DeltaTable> tables, EpochView* view,
                                     std::vector<bool>* changed_variables, PreparedRows* rows) {
  rows->of_tables.reserve(overlays_.size());
  for (const DeltaTable& delta : tables) {
    bool known = false;
    const std::string name = absl::StrCat("table '", delta.name, "'");
    for (size_t i = 0; i < overlays_.size(); ++i) {
      const LiveDescription::Table& table = description().tables[i];
      if (table.source != delta.name) continue;
      known = true;
      if (delta.key_kind != table.key_kind || delta.dim != table.dim) {
        return DoesNotFit(name, ": rows of ", delta.dim, " by ", KindName(delta.key_kind), ", expected rows of ",
                          table.dim, " by ", KindName(table.key_kind));
      }
      auto& [overlay, change] = rows->of_tables.emplace_back(overlays_[i].get(), OverlayTable::Change());
      if (absl::Status s = overlay->Prepare(delta, &change); !s.ok()) return WithName(name, s);
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
    if (FirstNonNumber(values, delta.dim) >= 0) {
      return DoesNotFit("row ", row, ": not all numbers are finite, expected finite numbers");
    }
    std::copy_n(values, delta.dim, changed->flat<float>().data() + row * delta.dim);
  }
  view->variables_[number] = std::move(changed);
  return absl::OkStatus();
}

absl::Status LiveModel::ChangeAllRows(const DeltaVariable& delta, PreparedRows* rows, bool* known) {
  const size_t count = delta.shape.empty() ? 0 : static_cast<size_t>(delta.shape[0]);
  size_t dim = 1;
  for (size_t i = 1; i < delta.shape.size(); ++i) dim *= static_cast<size_t>(delta.shape[i]);
  std::vector<int64_t> numbers;
  for (size_t i = 0; i < overlays_.size(); ++i) {
    const LiveDescription::Table& table = description().tables[i];
    if (table.source != delta.name || table.key_kind != DeltaKeyKind::kRowNumber) continue;
    *known = true;
    const int64_t expected = table.rows.num_rows;
    if (dim != table.dim || (expected >= 0 && count != static_cast<size_t>(expected))) {
      return DoesNotFit("shape ", ShapeText(delta.shape), ", expected ",
                        expected >= 0 ? absl::StrCat(expected, " ") : "", "rows of ", table.dim);
    }
    for (const auto& [overlay, change] : rows->of_tables) {
      if (overlay == overlays_[i].get()) {
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
    auto& [overlay, change] = rows->of_tables.emplace_back(overlays_[i].get(), OverlayTable::Change());
    if (absl::Status s = overlay->Prepare(all, &change); !s.ok()) return s;
  }
  return absl::OkStatus();
}

absl::Status LiveModel::ChangeVariables(absl::Span<const DeltaVariable> variables, EpochView* view,
                                        std::vector<bool>* changed_variables, PreparedRows* rows) {
  for (const DeltaVariable& delta : variables) {
    const int number = description().VariableOf(delta.name);
    const std::string name = absl::StrCat("variable '", delta.name, "'");
    bool known = description().IsUnserved(delta.name);
    if (absl::Status s = ChangeAllRows(delta, rows, &known); !s.ok()) return WithName(name, s);
    if (number < 0 && known) continue;
    if (number < 0) return DoesNotFit(name, ": not in the model, expected one of its variables");
    const std::vector<int64_t>& expected = description().variables[number].shape;
    if (delta.shape != expected) {
      return DoesNotFit(name, ": shape ", ShapeText(delta.shape), ", expected ", ShapeText(expected));
    }
    auto value = std::make_shared<Tensor>(tensorflow::DT_FLOAT, tensorflow::TensorShape(delta.shape));
    const int64_t elements = value->NumElements();
    if (const int64_t at = FirstNonNumber(delta.data, elements); at >= 0) {
      return DoesNotFit(name, ": element ", at, " is ", delta.data[at], ", expected a finite number");
    }
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

absl::Status LiveModel::RollBack(uint64_t epoch) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (auto& view : kept_) {
    if (view->facts().epoch != epoch) continue;
    if (absl::Status s = ToPrecision(precision_, &view); !s.ok()) return s;
    held_ = true;
    Serve(view);
    return absl::OkStatus();
  }
  std::string kept;
  for (const auto& view : kept_) absl::StrAppend(&kept, kept.empty() ? "" : ", ", view->facts().epoch);
  return absl::FailedPreconditionError(absl::StrCat("epoch ", epoch, ": not kept, expected one of ", kept));
}

void LiveModel::Resume() {
  std::lock_guard<std::mutex> lock(mutex_);
  if (!held_) return;
  held_ = false;
  Serve(kept_.back());
}

LiveModel::Epochs LiveModel::epochs() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return EpochsLocked();
}

LiveModel::Epochs LiveModel::EpochsLocked() const {
  return {served_->facts(), kept_.back()->facts(), held_, kept_.front()->facts().epoch};
}

absl::Status LiveModel::ToPrecision(const std::string& precision, std::shared_ptr<const EpochView>* kept) {
  if ((*kept)->precision() == precision) return absl::OkStatus();
  std::shared_ptr<EpochView> view = EpochView::InPrecision(**kept, precision);
  const std::vector<bool> unchanged(view->formulas_.size());
  if (absl::Status s = view->PrepareWeights(**kept, unchanged); !s.ok()) return s;
  *kept = std::move(view);
  return absl::OkStatus();
}

absl::Status LiveModel::SetPrecision(const std::string& precision) {
  std::lock_guard<std::mutex> lock(mutex_);
  // The next epoch takes weights from the newest; the others follow when they are rolled back to.
  if (absl::Status s = ToPrecision(precision, &kept_.back()); !s.ok()) return s;
  const auto is_served = [this](const auto& view) { return view->facts().epoch == served_->facts().epoch; };
  const auto served = std::find_if(kept_.begin(), kept_.end(), is_served);
  if (absl::Status s = ToPrecision(precision, &*served); !s.ok()) return s;
  precision_ = precision;
  Serve(*served);
  return absl::OkStatus();
}

absl::Status LiveModel::InPrecision(const Tensor& pinned, const std::string& precision, Tensor* other) {
  const EpochView* view = nullptr;
  if (absl::Status s = ReadViewTensor(pinned, &view); !s.ok()) return s;
  // The tensor keeps the epoch as well, which is counted.
  struct Both {
    Tensor pinned;
    std::shared_ptr<const EpochView> view;
  };
  const auto both = std::make_shared<const Both>(Both{pinned, EpochView::InPrecision(*view, precision)});
  *other = MakeViewTensor(std::shared_ptr<const EpochView>(both, both->view.get()));
  return absl::OkStatus();
}

LiveModel::Status LiveModel::status() const {
  std::lock_guard<std::mutex> lock(mutex_);
  Status status;
  static_cast<Epochs&>(status) = EpochsLocked();
  status.applied_rows = applied_rows_;
  for (const auto& overlay : overlays_) {
    status.changed_rows += overlay->live_rows();
    status.overlay_bytes += overlay->bytes();
  }
  return status;
}

std::string LiveModel::DebugString() const { return absl::StrCat("live model at epoch ", epochs().served.epoch); }

}  // namespace processor
