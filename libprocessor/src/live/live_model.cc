// SPDX-License-Identifier: Apache-2.0
#include "src/live/live_model.h"

#include <algorithm>
#include <atomic>
#include <new>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/thread_number.h"
#include "src/live/live_changes.h"
#include "src/tables/delta_timeline.h"

namespace processor {

using tensorflow::Tensor;

namespace {

// Epochs that wait for idle time to be compacted.
constexpr size_t kMostUncompacted = 2;
// How soon a model that can give up tries again to lock the overlays.
constexpr std::chrono::milliseconds kTryAgain{1};
// What an epoch does for the index of a table if there is no idle time.
constexpr std::chrono::milliseconds kIndexSlice{2};

}  // namespace

class LiveModel::OverlayLock {
 public:
  explicit OverlayLock(const LiveModel* model) : model_(model), lock_(model->group_->mutex()) {}
  OverlayLock(const LiveModel* model, std::try_to_lock_t)
      : model_(model), lock_(model->group_->mutex(), std::try_to_lock) {}
  /// Waits for the lock, at most until `give_up` returns true; if it is null, for as long as it takes.
  OverlayLock(const LiveModel* model, const std::function<bool()>& give_up) : OverlayLock(model, std::try_to_lock) {
    while (!owns_lock() && give_up && !give_up() && !lock_.try_lock()) std::this_thread::sleep_for(kTryAgain);
    if (!owns_lock() && !give_up) lock_.lock();
  }
  ~OverlayLock() {
    if (owns_lock()) model_->CountMemory();
  }
  OverlayLock(const OverlayLock&) = delete;
  OverlayLock& operator=(const OverlayLock&) = delete;

  bool owns_lock() const { return lock_.owns_lock(); }

 private:
  const LiveModel* const model_;
  std::unique_lock<std::mutex> lock_;
};

LiveModel::~LiveModel() {
  std::lock_guard<std::mutex> lock(group_->mutex());
  group_->RemoveReader(this);
}

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
    made->overlays_.push_back(std::make_shared<SharedOverlay>(std::move(overlay), description.chain));
    made->parts_->tables.emplace(names[i], static_cast<int>(i));
    view->tables_.emplace_back(made->overlays_.back()->table(), 0);
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

Tensor LiveModel::Pin() const { return published_.Read()->tensors[ThreadNumber() % Publication::kParts]; }

void LiveModel::Serve(std::shared_ptr<const EpochView> view) { Publish(std::move(view), group_->NextGeneration()); }

void LiveModel::ServeKept(std::shared_ptr<const EpochView> view) {
  Publish(std::move(view), generations_.back().number);
}

void LiveModel::Publish(std::shared_ptr<const EpochView> view, uint64_t generation) {
  const auto holder = std::make_shared<const std::shared_ptr<const EpochView>>(view);
  auto made = std::make_shared<Publication>();
  for (Tensor& tensor : made->tensors) tensor = MakeViewTensor({holder, view.get()});
  made->epochs = {view->facts(), Newest().facts(), held_, kept_.front()->facts().epoch};
  made->applied_rows = applied_rows_;
  made->overlays.assign(overlays_.begin(), overlays_.end());
  generations_.reserve(generations_.size() + 1);
  published_.Exchange(std::move(made));
  generations_.push_back({generation, holder});
  served_ = std::move(view);
}

absl::Status LiveModel::Follows(const Changes& changes) const {
  const DeltaHeader& header = changes.header;
  const EpochFacts& newest = Newest().facts();
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

absl::Status LiveModel::Apply(const DeltaSegment& segment, const std::function<bool()>& give_up) {
  return Apply({absl::StrCat("segment '", segment.path(), "'"), segment.header(), segment.tables(), segment.variables(),
                segment.chains()},
               give_up);
}

absl::Status LiveModel::Apply(const Changes& changes, const std::function<bool()>& give_up) {
  const std::lock_guard<std::mutex> lock(mutex_);
  absl::Status status;
  try {
    PublishMissed();
    status = ApplyChecked(changes, give_up);
  } catch (const std::bad_alloc&) {
    status = absl::ResourceExhaustedError("no memory for the changes");
  }
  return WithName(changes.name, status);
}

void LiveModel::PublishMissed() {
  if (published_.Read()->epochs.newest.epoch == Newest().facts().epoch) return;
  ServeKept(pending_ == nullptr ? kept_.back() : served_);
}

OverlayTable::Readers LiveModel::FindReaders() {
  const auto unused = [](const Generation& generation) { return generation.view.use_count() == 1; };
  generations_.erase(std::remove_if(generations_.begin(), generations_.end(), unused), generations_.end());
  // What requests have read happens before what is written to the rows that they leave.
  std::atomic_thread_fence(std::memory_order_acquire);
  uint64_t oldest = UINT64_MAX, oldest_generation = UINT64_MAX;
  for (const auto& view : kept_) {
    if (ReadsShared(*view)) oldest = std::min(oldest, view->facts().epoch);
  }
  for (const Generation& generation : generations_) {
    // Of all views: a kept one may be served without the lock of the overlays.
    oldest_generation = std::min(oldest_generation, generation.number);
    if (ReadsShared(**generation.view)) oldest = std::min(oldest, (*generation.view)->facts().epoch);
  }
  if (oldest == UINT64_MAX) {
    group_->SetReadsNothing(this);
  } else {
    group_->SetReader(this, static_cast<uint32_t>(oldest - description().epoch), oldest_generation);
  }
  return group_->Readers();
}

bool LiveModel::ReadsShared(const EpochView& view) const {
  for (size_t i = 0; i < overlays_.size(); ++i) {
    if (&view.table(static_cast<int>(i)).overlay() == overlays_[i]->table().get()) return true;
  }
  return false;
}

void LiveModel::UpdateReaders() {
  const OverlayTable::Readers readers = FindReaders();
  for (const auto& overlay : overlays_) overlay->SetReaders(readers);
}

void LiveModel::CountMemory() const {
  for (const auto& overlay : overlays_) overlay->CountMemory();
}

void LiveModel::Share(const std::string& timeline) {
  const std::shared_ptr<OverlayGroup> group = OverlayGroup::Of(timeline, description());
  std::lock_guard<std::mutex> lock(mutex_);
  std::lock_guard<std::mutex> shared(group->mutex());
  first_ = kept_.front();
  for (size_t i = 0; i < overlays_.size(); ++i) {
    overlays_[i] = group->Share(description().tables[i], overlays_[i]->table(), description().chain);
  }
  group_ = group;
  ++layout_;
  Serve(first_);
  UpdateReaders();
  CountMemory();
}

absl::Status LiveModel::Settle(bool* again) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const std::shared_ptr<const EpochView> first = std::move(first_);
  *again = pending_ != nullptr;
  if (!*again) return absl::OkStatus();
  try {
    std::shared_ptr<EpochView> view(new EpochView(parts_));
    std::vector<std::shared_ptr<SharedOverlay>> own;
    for (size_t i = 0; i < overlays_.size(); ++i) {
      const LiveDescription::Table& table = description().tables[i];
      std::unique_ptr<OverlayTable> overlay;
      const OverlayTable& shared = first->table(static_cast<int>(i)).overlay();
      absl::Status status = OverlayTable::Create(shared.shared_base(), table.key_kind, table.rows, &overlay);
      if (!status.ok()) return WithName(absl::StrCat("live model: '", table.source, "'"), status);
      own.push_back(std::make_shared<SharedOverlay>(std::move(overlay), description().chain));
      view->tables_.emplace_back(own.back()->table(), 0);
    }
    view->facts_ = first->facts();
    view->precision_ = first->precision();
    view->formulas_ = first->formulas_;
    view->variables_ = first->variables_;
    const std::vector<bool> unchanged(view->formulas_.size());
    if (absl::Status s = view->PrepareWeights(*first, unchanged); !s.ok()) return s;
    auto group = std::make_shared<OverlayGroup>();
    {
      const OverlayLock overlays(this);
      group_->RemoveReader(this);
    }
    pending_ = nullptr;
    overlays_ = std::move(own);
    view->layout_ = ++layout_;
    group_ = std::move(group);
    kept_.assign(1, view);
    const OverlayLock overlays(this);
    Serve(std::move(view));
  } catch (const std::bad_alloc&) {
    return absl::ResourceExhaustedError("live model: no memory for rows of its own");
  }
  return absl::OkStatus();
}

bool LiveModel::Compact(std::chrono::microseconds most) {
  const auto until = std::chrono::steady_clock::now() + most;
  const std::lock_guard<std::mutex> lock(mutex_);
  const OverlayLock overlays(this, std::try_to_lock);
  if (!overlays.owns_lock()) return true;
  UpdateReaders();
  bool more = false, retired = false;
  for (const auto& overlay : overlays_) {
    OverlayTable& table = *overlay->table();
    more = more || table.Compact(until) || table.AdvanceIndex(until) || table.WriteInPlace(until);
    // Requests of this model end soon; what other models of the group do is up to them.
    more = more || generations_.front().number <= table.awaited();
    retired = retired || table.HasRetired();
  }
  try {
    // From now on, requests do not find what was replaced; when those before have ended, it is used again.
    if (retired && generations_.size() == 1) Serve(served_);
  } catch (const std::bad_alloc&) {
    return false;  // another time
  }
  return more;
}

absl::Status LiveModel::ApplyChecked(const Changes& changes, const std::function<bool()>& give_up) {
  if (absl::Status s = Follows(changes); !s.ok()) return s;
  if (absl::Status s = CheckNumbers(changes); !s.ok()) return s;
  // What takes most of the time, the weights, is made while other models of the timeline can change the overlays.
  std::shared_ptr<EpochView> view;
  if (absl::Status s = MakeView(changes, &view); !s.ok()) return s;
  const OverlayLock overlays(this, give_up);
  if (!overlays.owns_lock()) return absl::AbortedError("given up, because another model changes the same overlays");
  return Commit(changes, std::move(view));
}

absl::Status LiveModel::MakeView(const Changes& changes, std::shared_ptr<EpochView>* made) {
  const DeltaHeader& header = changes.header;
  const EpochView& before = Newest();
  std::shared_ptr<EpochView> view(new EpochView(parts_));
  view->precision_ = precision_;
  view->facts_ = {header.last_epoch, header.chain, header.term, header.event_time, header.write_time};
  view->formulas_ = before.formulas_;
  view->variables_ = before.variables_;
  std::vector<bool> changed_variables(view->variables_.size()), changed_formulas(view->formulas_.size());
  absl::Status status = ChangeTables(changes.tables, view.get(), &changed_variables);
  if (status.ok()) status = ChangeVariables(changes.variables, view.get(), &changed_variables);
  if (status.ok()) status = ComputeFormulas(changed_variables, view.get(), &changed_formulas);
  if (status.ok()) status = view->PrepareWeights(before, changed_formulas);
  if (status.ok()) *made = std::move(view);
  return status;
}

absl::Status LiveModel::Commit(const Changes& changes, std::shared_ptr<EpochView> view) {
  const DeltaHeader& header = changes.header;
  const uint64_t first = description().epoch;
  UpdateReaders();
  const EpochFacts& before = Newest().facts();
  const auto from = static_cast<uint32_t>(before.epoch - first);
  writes_.assign(overlays_.size(), false);
  for (size_t i = 0; i < overlays_.size(); ++i) {
    writes_[i] = overlays_[i]->newest() == from && overlays_[i]->Has(from, before.chain);
    OverlayTable& table = *overlays_[i]->table();
    // Without idle time, memory must not grow for ever. A model that only moves to what others have written adds nothing.
    if (!writes_[i] || table.uncompacted_epochs() <= kMostUncompacted) continue;
    table.Compact(std::chrono::steady_clock::time_point::max());
    table.AdvanceIndex(std::chrono::steady_clock::now() + kIndexSlice);
  }
  PreparedRows rows;
  if (absl::Status s = PrepareRows(changes, &rows); !s.ok()) return s;
  view->tables_.reserve(overlays_.size());
  for (const auto& overlay : overlays_) overlay->Reserve();
  kept_.push_back(view);
  // Nothing fails from here on, apart from memory for a few bytes.
  const auto epoch = static_cast<uint32_t>(header.last_epoch - first);
  applied_rows_ += rows.of_others;
  for (auto& [overlay, change] : rows.of_tables) {
    applied_rows_ += change.num_rows();
    overlay->Commit(epoch, &change);
  }
  bool kept = true;
  for (size_t i = 0; i < overlays_.size(); ++i) {
    if (writes_[i]) overlays_[i]->Add(epoch, header.chain);
    kept = kept && overlays_[i]->Has(epoch, header.chain);
  }
  if (!kept) {
    kept_.pop_back();
    pending_ = std::move(view);
    Serve(served_);  // the status has the newest epoch
    return absl::OkStatus();
  }
  pending_ = nullptr;
  for (const auto& overlay : overlays_) view->tables_.emplace_back(overlay->table(), epoch);
  view->layout_ = layout_;
  if (kept_.size() > kKeptEpochs + 1) kept_.pop_front();
  // Other models may change the overlays before this one does so again, even if there is no memory to serve the epoch now.
  // This needs none, as UpdateReaders() has named this model.
  FindReaders();
  Serve(std::move(view));
  return absl::OkStatus();
}

absl::Status LiveModel::RollBack(uint64_t epoch) {
  const std::lock_guard<std::mutex> lock(mutex_);
  for (auto& view : kept_) {
    if (view->facts().epoch != epoch) continue;
    if (absl::Status s = ToPrecision(precision_, &view); !s.ok()) return s;
    held_ = true;
    ServeKept(view);
    return absl::OkStatus();
  }
  std::string kept;
  for (const auto& view : kept_) absl::StrAppend(&kept, kept.empty() ? "" : ", ", view->facts().epoch);
  return absl::FailedPreconditionError(absl::StrCat("epoch ", epoch, ": not kept, expected one of ", kept));
}

void LiveModel::Resume() {
  const std::lock_guard<std::mutex> lock(mutex_);
  // Memory may have been short when it was resumed before.
  if (!held_ && !epochs().held) return;
  held_ = false;
  ServeKept(kept_.back());
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
  const std::lock_guard<std::mutex> lock(mutex_);
  // The next epoch takes weights from the newest; the others follow when they are rolled back to.
  if (absl::Status s = ToPrecision(precision, &kept_.back()); !s.ok()) return s;
  const auto is_served = [this](const auto& view) { return view->facts().epoch == served_->facts().epoch; };
  const auto served = std::find_if(kept_.begin(), kept_.end(), is_served);
  if (absl::Status s = ToPrecision(precision, &*served); !s.ok()) return s;
  precision_ = precision;
  ServeKept(*served);
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
  const std::shared_ptr<const Publication> published = published_.Read();
  Status status;
  static_cast<Epochs&>(status) = published->epochs;
  status.applied_rows = published->applied_rows;
  for (const auto& overlay : published->overlays) {
    status.changed_rows += overlay->counted_rows();
    status.overlay_bytes += overlay->counted_bytes();
  }
  return status;
}

std::map<const void*, int64_t> LiveModel::overlay_sizes() const {
  std::map<const void*, int64_t> sizes;
  for (const auto& overlay : published_.Read()->overlays) {
    sizes[overlay.get()] = static_cast<int64_t>(overlay->counted_bytes());
  }
  return sizes;
}

std::string LiveModel::DebugString() const { return absl::StrCat("live model at epoch ", epochs().served.epoch); }

}  // namespace processor
