// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/follow/precision_watch.h"

#include <pthread.h>

#include <algorithm>
#include <system_error>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "src/base/log.h"
#include "src/runtime/requests/exception_status.h"
#include "src/runtime/stats/stats.h"
#include "src/runtime/threads/background_thread.h"
#include "src/runtime/threads/lone_thread.h"
#include "src/runtime/threads/process_threads.h"

namespace processor {
namespace {

// Between two checks of a model; and so many times the time of a check, so that checks take a hundredth of a CPU at most.
constexpr int64_t kBetweenNs = kSecondNs;
constexpr int64_t kShare = 100;
// The epoch that is checked keeps the memory of changed rows.
constexpr int64_t kLongestNs = 60 * kSecondNs;

std::string WithoutCheck(const ModelVersion& version) {
  const PrecisionChoice choice = version.precision();
  if (choice.forced) return absl::StrCat("not checked: ", choice.precision, " is forced");
  if (choice.permitted.empty()) return "not checked: fp32 needs no check";
  if (version.records.empty()) return "not checked: the model has no recorded requests";
  return "no epoch was checked yet";
}

}  // namespace

PrecisionWatch::PrecisionWatch(std::string name, std::shared_ptr<ModelVersion> version)
    : name_(std::move(name)),
      version_(std::move(version)),
      // The certificate is about the epoch of the artifact.
      checked_epoch_(static_cast<int64_t>(version_->live()->description().epoch)) {
  state_.outcome = WithoutCheck(*version_);
}

PrecisionState PrecisionWatch::state() const {
  const PrecisionChoice choice = version_->precision();
  std::lock_guard<std::mutex> lock(mutex_);
  PrecisionState state = state_;
  state.precision = choice.precision;
  state.reason = choice.reason;
  return state;
}

void PrecisionWatch::Turn() {
  if (check_ != nullptr) {
    if (!check_->ended.load(std::memory_order_acquire)) {
      if (NowNs() - check_->begin_ns > kLongestNs) {
        check_->cancellation.Request(absl::DeadlineExceededError("too little idle time"));
      }
      return;
    }
    check_->thread.join();
    const std::unique_ptr<const Check> check = std::move(check_);
    Conclude(*check);
  }
  if (NowNs() < next_ns_ || version_->records.empty() || version_->precision().permitted.empty()) return;
  const PinnedEpoch epoch = version_->Pin();
  if (epoch.epoch != checked_epoch_) Begin(epoch);
}

void PrecisionWatch::Stop() noexcept {
  if (check_ == nullptr) return;
  check_->cancellation.Request(StatusWithoutThrowing(absl::StatusCode::kCancelled, "the model was freed"));
  check_->thread.join();
  check_.reset();
}

void PrecisionWatch::Begin(const PinnedEpoch& epoch) {
  checked_epoch_ = epoch.epoch;
  auto check = std::make_unique<Check>();
  check->epoch = epoch.epoch;
  check->begin_ns = NowNs();
  if (absl::Status s = MakeTrial(version_, epoch, version_->precision().permitted, &check->trial); !s.ok()) {
    check->status = s;
    return Conclude(*check);
  }
  try {
    check->thread = std::thread([&check = *check] { Run(check); });
  } catch (const std::system_error&) {
    check->status = absl::ResourceExhaustedError("no thread could be started");
    return Conclude(*check);
  }
  check_ = std::move(check);
}

void PrecisionWatch::Run(Check& check) noexcept {
  pthread_setname_np(pthread_self(), "precision");
  KeepThreadInPlace();
  RunInIdleTime();
  ComputeAlone();
  const StartThreadsElsewhere elsewhere(&check.starter);
  const Cancellation::Scope scope(&check.cancellation);
  check.status = Attempt([&] { return RunTrial(std::move(check.trial), &check.outcome); });
  check.ended.store(true, std::memory_order_release);
}

void PrecisionWatch::Conclude(const Check& check) {
  next_ns_ = NowNs() + std::max(kBetweenNs, kShare * static_cast<int64_t>(check.outcome.cpu_ms * 1e6));
  // Time or memory may have been short. Too few requests stay too few.
  if (!check.status.ok() && !absl::IsFailedPrecondition(check.status)) {
    checked_epoch_ = -1;
    next_ns_ += kLongestNs;
  }
  const TrialOutcome& outcome = check.outcome;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (!check.status.ok()) {
      state_.outcome = absl::StrCat("epoch ", check.epoch, " was not checked: ", check.status.message());
      return;
    }
    ++state_.checks;
    state_.epoch = check.epoch;
    state_.requests = outcome.requests;
    state_.rows = outcome.rows;
    state_.max_difference = outcome.losses.front().max_difference;
    state_.rank_correlation_loss = outcome.losses.front().rank_correlation_loss;
    state_.cpu_ms = outcome.cpu_ms;
    std::vector<std::string> found;
    for (const PrecisionLoss& loss : outcome.losses) {
      if (!loss.problem.empty()) found.push_back(loss.problem);
    }
    if (found.empty()) found.push_back(absl::StrCat(state_.rank_correlation_loss, " of rank correlation is lost"));
    state_.outcome = absl::StrCat("epoch ", check.epoch, ", ", outcome.requests, " recorded requests with ",
                                  outcome.rows, " rows: ", absl::StrJoin(found, "; "));
  }
  if (!outcome.losses.front().problem.empty()) FallBack(check);
}

void PrecisionWatch::FallBack(const Check& check) {
  std::vector<PermittedPrecision> permitted = version_->precision().permitted;
  const size_t failed = check.outcome.any_passed() ? check.outcome.losses.size() - 1 : permitted.size();
  permitted.erase(permitted.begin(), permitted.begin() + static_cast<std::ptrdiff_t>(failed));
  const std::string now = permitted.empty() ? "fp32" : permitted.front().name;
  std::string reason;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    reason = absl::StrCat(state_.outcome, "; computes in ", now, " until it is loaded again");
  }
  if (absl::Status s = version_->ChangePrecision(std::move(permitted), reason); !s.ok()) {
    checked_epoch_ = -1;
    Log(Severity::kError, absl::StrCat("precision: ", name_, ": ", reason, " is not possible now: ", s.message()));
    return;
  }
  {
    std::lock_guard<std::mutex> lock(mutex_);
    state_.fell_back = true;
  }
  Log(Severity::kWarning, absl::StrCat("precision: ", name_, ": ", reason));
}

}  // namespace processor
