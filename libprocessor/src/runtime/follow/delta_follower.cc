// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/follow/delta_follower.h"

#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/base/log.h"
#include "src/runtime/requests/exception_status.h"
#include "src/runtime/stats/stats.h"
#include "src/runtime/threads/process_threads.h"
#include "src/runtime/threads/thread_starter.h"

namespace processor {
namespace {

using std::chrono::milliseconds;

// How often the folder is looked at even if the kernel reports no change, as on network file systems; and of how many such
// times it is listed once although its time of change is the same, which some file systems write in whole seconds.
constexpr milliseconds kFolderPoll{200};
constexpr int kListingsApart = 10;
// In idle time, memory is compacted for a while and left alone for twice as long, so that requests have the CPU.
constexpr milliseconds kCompaction{2};
constexpr milliseconds kPause{4};
// For requests without a deadline that ask for an epoch.
constexpr int64_t kLongestWaitUs = 10'000'000;
// So much before its deadline a request ends, so that its client learns why.
constexpr int64_t kLastWordUs = 10'000;

// Returns when a folder was changed; another value if it is another folder or cannot be looked at.
int64_t ChangeOf(const std::string& folder) {
  struct stat found{};
  if (stat(folder.c_str(), &found) != 0) return -1;
  const int64_t time_ns = int64_t{found.st_mtim.tv_sec} * 1'000'000'000 + found.st_mtim.tv_nsec;
  return time_ns ^ static_cast<int64_t>(found.st_ino << 1);
}

TimelinePosition NewestPosition(const LiveModel& live) {
  const EpochFacts newest = live.epochs().newest;
  return {live.description().lineage, newest.epoch, newest.chain, newest.term};
}

}  // namespace

DeltaFollower::DeltaFollower(const FollowOptions& options, tensorflow::core::RefCountPtr<LiveModel> live)
    : model_(options.model),
      timeline_(options.timeline),
      live_(std::move(live)),
      store_(options.store.empty() ? nullptr
                                   : SegmentStore::Of(options.store, options.timeline, live_->description().lineage)),
      kept_(NewestPosition(*live_)),
      watch_(timeline_.folder()) {
  if (options.permit_not_finite) live_->PermitNotFinite();
}

DeltaFollower::~DeltaFollower() {
  Stop(absl::CancelledError("request: the model was freed while it waited"));
  if (store_ != nullptr) store_->SetHeld(this, std::nullopt);
}

absl::Status DeltaFollower::Start(const Cancellation& cancellation) {
  live_->Share(timeline_.folder());
  CatchUp(&cancellation);
  bool again = false;
  if (absl::Status s = live_->Settle(&again); !s.ok()) return s;
  if (again) CatchUp(&cancellation);
  if (cancellation.requested()) return cancellation.why();
  try {
    // The thread that loads the model may have less time of the CPUs than those that serve.
    StartServingThreads([this] { thread_ = std::thread([this] { Follow(); }); });
  } catch (const std::system_error&) {
    return absl::ResourceExhaustedError("follow: no thread could be started, expected one for the timeline");
  }
  return absl::OkStatus();
}

void DeltaFollower::Stop(const absl::Status& status) noexcept {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
  }
  watch_.Wake();
  if (thread_.joinable()) thread_.join();
  Attempt([&] { return waiters_.Stop(status), absl::OkStatus(); }).IgnoreError();
}

void DeltaFollower::Hold(std::optional<int64_t> epoch) {
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (wanted_ == epoch) return;
    wanted_ = epoch;
  }
  if (store_ != nullptr) store_->SetHeld(this, epoch);
  waiters_.SetHeld(epoch);
  watch_.Wake();
}

void DeltaFollower::WaitFor(int64_t epoch, int64_t deadline_us, EpochWaiters::Continue next) {
  const int64_t until_us = deadline_us != 0 ? deadline_us - kLastWordUs : NowNs() / 1000 + kLongestWaitUs;
  waiters_.Wait(epoch, until_us, std::move(next));
  watch_.Wake();  // it may have to end before the present wait does
}

void DeltaFollower::Follow() {
  KeepThreadInPlace();
  int64_t change = -1;
  bool compacting = false;
  for (int quiet = 0;;) {
    const int64_t next_us = waiters_.Expire(NowNs() / 1000);
    const int64_t most_us = 1000 * int64_t{(compacting ? kPause : kFolderPoll).count()};
    const int64_t left_us = std::clamp<int64_t>(next_us - NowNs() / 1000, 0, most_us);
    const bool woken = watch_.Wait(milliseconds((left_us + 999) / 1000));
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (stopped_) return;
    }
    if (each_turn_) Attempt([this] { return each_turn_(), absl::OkStatus(); }).IgnoreError();
    const int64_t before = std::exchange(change, ChangeOf(timeline_.folder()));
    if (!woken && change == before && (compacting || ++quiet < kListingsApart)) {
      compacting = live_->Compact(kCompaction);
      continue;
    }
    quiet = 0;
    Attempt([&] {
      CatchUp(nullptr);
      compacting = live_->Compact(kCompaction);
      return absl::OkStatus();
    }).IgnoreError();
  }
}

void DeltaFollower::CatchUp(const Cancellation* cancellation) {
  const absl::Status applied = ApplyPublished(cancellation);
  const absl::Status held = GoToHeldEpoch(live_->epochs());
  waiters_.Reach(static_cast<int64_t>(live_->epochs().served.epoch));
  Report(applied.ok() ? held : applied, store_ == nullptr ? absl::OkStatus() : CompleteStore());
}

std::optional<int64_t> DeltaFollower::wanted() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return wanted_;
}

absl::Status DeltaFollower::ApplyPublished(const Cancellation* cancellation) {
  for (;;) {
    if (cancellation != nullptr && cancellation->requested()) return absl::OkStatus();
    bool applied = false;
    if (absl::Status s = ApplyNext(cancellation, &applied); !applied) return s;
    waiters_.Reach(static_cast<int64_t>(live_->epochs().served.epoch));
  }
}

absl::Status DeltaFollower::ApplyNext(const Cancellation* cancellation, bool* applied) {
  std::optional<int64_t> wanted;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopped_) return absl::OkStatus();
    wanted = wanted_;
  }
  const TimelinePosition position = NewestPosition(*live_);
  if (wanted.has_value() && static_cast<int64_t>(position.epoch) >= *wanted) return absl::OkStatus();
  // It is held at an epoch that is no longer wanted.
  live_->Resume();
  std::unique_ptr<const DeltaSegment> segment;
  bool published = false;
  // Rather an older state than one that was rolled back.
  const uint64_t most = wanted.has_value() ? static_cast<uint64_t>(*wanted) : kGreatestEpoch;
  absl::Status status = FindNext(position, most, &segment, &published);
  if (segment == nullptr) return status;
  // A version of the timeline that is loaded in idle time may change overlays for long.
  const auto give_up = [&] {
    if (cancellation != nullptr && cancellation->requested()) return true;
    std::lock_guard<std::mutex> lock(mutex_);
    return stopped_ || wanted_ != wanted;
  };
  if (absl::Status s = ApplyKept(*segment, published, give_up); !s.ok()) {
    return absl::IsAborted(s) ? absl::OkStatus() : s;
  }
  *applied = true;
  std::lock_guard<std::mutex> lock(mutex_);
  applied_us_ = UnixUs();
  return absl::OkStatus();
}

absl::Status DeltaFollower::FindNext(const TimelinePosition& position, uint64_t most,
                                     std::unique_ptr<const DeltaSegment>* segment, bool* published) const {
  absl::Status status = timeline_.Next(position, most, segment);
  *published = *segment != nullptr;
  if (*published || store_ == nullptr) return status;
  const absl::Status stored = store_->Next(position, most, segment);
  return status.ok() ? stored : status;
}

absl::Status DeltaFollower::ApplyKept(const DeltaSegment& segment, bool published,
                                      const std::function<bool()>& give_up) {
  const TimelinePosition position = PositionAfter(segment.header());
  // Without the segments before it, a copy would be of no use.
  const bool follows = store_ != nullptr && CheckContinues(segment.header(), segment.chains(), kept_).ok();
  bool added = false;
  const bool kept = follows && (!published || store_->Keep(segment, &added).ok());
  if (absl::Status s = live_->Apply(segment, give_up); !s.ok()) {
    // One that was only given up, or lacked memory, is applied later; another follower may count on it already.
    if (added && !absl::IsAborted(s) && !absl::IsResourceExhausted(s)) store_->Drop(segment);
    return s;
  }
  if (kept) kept_ = position;
  return absl::OkStatus();
}

absl::Status DeltaFollower::CompleteStore() {
  const uint64_t newest = live_->epochs().newest.epoch;
  while (kept_.epoch < newest) {
    std::unique_ptr<const DeltaSegment> segment;
    bool added = false;
    // A fault of the timeline is reported when it has to be applied.
    if (!timeline_.Next(kept_, newest, &segment).ok() || segment == nullptr) break;
    if (absl::Status s = store_->Keep(*segment, &added); !s.ok()) return s;
    kept_ = PositionAfter(segment->header());
  }
  if (absl::Status s = store_->Flush(); !s.ok()) return s;
  return store_->ReplaceByCompacted(timeline_);
}

absl::Status DeltaFollower::GoToHeldEpoch(const LiveModel::Epochs& epochs) {
  const std::optional<int64_t> wanted = this->wanted();
  if (!wanted.has_value()) {
    live_->Resume();
    return absl::OkStatus();
  }
  const auto epoch = static_cast<uint64_t>(*wanted);
  if (epochs.newest.epoch < epoch || (epochs.held && epochs.served.epoch == epoch)) return absl::OkStatus();
  return live_->RollBack(epoch);
}

std::string DeltaFollower::Shown(const std::string& error) const {
  return absl::StrCat("follow: ", model_, " at ", WallClockText(), ": ", error);
}

void DeltaFollower::Report(const absl::Status& status, const absl::Status& stored) {
  const std::string error = status.ok() ? "" : status.ToString(), store_error = stored.ok() ? "" : stored.ToString();
  bool refused = false, not_stored = false;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    refused = !error.empty() && error != error_;
    not_stored = !store_error.empty() && store_error != store_error_;
    error_ = error;
    store_error_ = store_error;
    kept_epoch_ = kept_.epoch;
    if (refused) ++refused_;
  }
  if (refused) {
    Log(Severity::kError, Shown(absl::StrCat(error, "; epoch ", live_->epochs().served.epoch, " goes on serving")));
  }
  if (not_stored) {
    Log(Severity::kWarning, Shown(absl::StrCat(store_error, "; after a restart without the timeline, the model would ",
                                               "begin at epoch ", kept_.epoch, "; tried again")));
  }
}

FollowState DeltaFollower::state() const {
  FollowState state;
  state.timeline = timeline_.folder();
  state.live = live_->status();
  std::lock_guard<std::mutex> lock(mutex_);
  state.refused = refused_;
  state.error = error_;
  state.applied_us = applied_us_;
  if (store_ != nullptr) state.store = store_->folder();
  state.kept_epoch = kept_epoch_;
  state.store_error = store_error_;
  return state;
}

std::string DeltaFollower::error() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return error_;
}

nlohmann::ordered_json FollowState::Json() const {
  using Json = nlohmann::ordered_json;
  const auto known = [](int64_t us) { return us == 0 ? Json() : Json(us); };
  return {{"timeline", timeline},
          {"epoch", live.served.epoch},
          {"oldest_epoch", live.oldest_kept},
          {"newest_epoch", live.newest.epoch},
          {"held", live.held},
          {"knows_us", known(live.served.knows_us())},
          {"applied_us", known(applied_us)},
          {"rows", live.applied_rows},
          {"overlay_rows", live.changed_rows},
          {"overlay_bytes", live.overlay_bytes},
          {"refused", refused},
          {"error", error.empty() ? Json() : Json(error)},
          {"kept_epoch", store.empty() ? Json() : Json(kept_epoch)},
          {"store_error", store_error.empty() ? Json() : Json(store_error)},
          {"precision", precision.has_value() ? precision->Json() : Json()}};
}

}  // namespace processor
