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

namespace processor {
namespace {

using std::chrono::milliseconds;

// How often the folder is looked at even if the kernel reports no change, as on network file systems; and of how many such
// times it is listed once although its time of change is the same, which some file systems write in whole seconds.
constexpr milliseconds kFolderPoll{200};
constexpr int kListingsApart = 10;
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
  const EpochFacts newest = live.status().newest;
  return {live.description().lineage, newest.epoch, newest.chain, newest.term};
}

}  // namespace

DeltaFollower::DeltaFollower(std::string folder, tensorflow::core::RefCountPtr<LiveModel> live)
    : timeline_(std::move(folder)), live_(std::move(live)), watch_(timeline_.folder()) {}

absl::Status DeltaFollower::Start(const Cancellation& cancellation) {
  CatchUp(&cancellation);
  if (cancellation.requested()) return cancellation.why();
  try {
    thread_ = std::thread([this] { Follow(); });
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
  for (int quiet = 0;;) {
    const int64_t next_us = waiters_.Expire(NowNs() / 1000);
    const int64_t left_us = std::clamp<int64_t>(next_us - NowNs() / 1000, 0, int64_t{kFolderPoll.count()} * 1000);
    const bool woken = watch_.Wait(milliseconds((left_us + 999) / 1000));
    {
      std::lock_guard<std::mutex> lock(mutex_);
      if (stopped_) return;
    }
    const int64_t before = std::exchange(change, ChangeOf(timeline_.folder()));
    if (!woken && change == before && ++quiet < kListingsApart) continue;
    quiet = 0;
    Attempt([this] {
      CatchUp(nullptr);
      return absl::OkStatus();
    }).IgnoreError();
  }
}

void DeltaFollower::CatchUp(const Cancellation* cancellation) {
  const absl::Status applied = ApplyPublished(cancellation);
  const absl::Status held = GoToHeldEpoch();
  Report(applied.ok() ? held : applied);
  waiters_.Reach(static_cast<int64_t>(live_->status().served.epoch));
}

std::optional<int64_t> DeltaFollower::wanted() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return wanted_;
}

absl::Status DeltaFollower::ApplyPublished(const Cancellation* cancellation) {
  for (;;) {
    if (cancellation != nullptr && cancellation->requested()) return absl::OkStatus();
    bool applied = false;
    if (absl::Status s = ApplyNext(&applied); !s.ok() || !applied) return s;
    waiters_.Reach(static_cast<int64_t>(live_->status().served.epoch));
  }
}

absl::Status DeltaFollower::ApplyNext(bool* applied) {
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
  if (absl::Status s = timeline_.Next(position, &segment); !s.ok()) return s;
  if (segment == nullptr) return absl::OkStatus();
  const DeltaHeader& header = segment->header();
  if (wanted.has_value() && header.last_epoch > static_cast<uint64_t>(*wanted)) {
    // Rather an older state than one that was rolled back.
    return absl::FailedPreconditionError(absl::StrCat(segment->path(), ": epochs ", header.first_epoch, " to ",
                                                      header.last_epoch, ", expected a segment that ends with epoch ",
                                                      *wanted, ", at which the model is to stay"));
  }
  if (absl::Status s = live_->Apply(*segment); !s.ok()) return s;
  *applied = true;
  std::lock_guard<std::mutex> lock(mutex_);
  applied_us_ = UnixUs();
  return absl::OkStatus();
}

absl::Status DeltaFollower::GoToHeldEpoch() {
  const std::optional<int64_t> wanted = this->wanted();
  const LiveModel::Status status = live_->status();
  if (!wanted.has_value()) {
    live_->Resume();
    return absl::OkStatus();
  }
  const auto epoch = static_cast<uint64_t>(*wanted);
  if (status.newest.epoch < epoch || (status.held && status.served.epoch == epoch)) return absl::OkStatus();
  return live_->RollBack(epoch);
}

void DeltaFollower::Report(const absl::Status& status) {
  const std::string text = status.ok() ? "" : status.ToString();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (text == error_) return;
    error_ = text;
    if (text.empty()) return;
    ++refused_;
  }
  Log(Severity::kError, absl::StrCat("follow: ", text, "; epoch ", live_->status().served.epoch, " goes on serving"));
}

FollowState DeltaFollower::state() const {
  FollowState state;
  state.timeline = timeline_.folder();
  state.live = live_->status();
  std::lock_guard<std::mutex> lock(mutex_);
  state.refused = refused_;
  state.error = error_;
  state.applied_us = applied_us_;
  return state;
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
          {"error", error.empty() ? Json() : Json(error)}};
}

}  // namespace processor
