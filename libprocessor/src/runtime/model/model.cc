// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/model/model.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "src/runtime/requests/deadline.h"
#include "src/runtime/requests/exception_status.h"
#include "src/runtime/requests/latch.h"

namespace processor {
namespace {

// A request whose caller waits while a thread of a slot runs it.
class WaitedWork : public AsyncWork {
 public:
  explicit WaitedWork(Work& work) : work_(work) {
    priority = work.priority;
    deadline_us = work.deadline_us;
    min_epoch = work.min_epoch;
    caller_keeps_deadline = true;
  }
  absl::Status Decode(const ModelVersion& version, DecodedRequest* request) override {
    return work_.Decode(version, request);
  }
  absl::Status Encode(const ModelVersion& version, const DecodedRequest& request,
                      std::vector<tensorflow::Tensor>& outputs) override {
    return work_.Encode(version, request, outputs);
  }
  void Done(const absl::Status& status) noexcept override {
    status_ = status;
    work_.timing = timing;
    latch_.Set();
  }

  Latch& latch() { return latch_; }
  const absl::Status& status() const { return status_; }

 private:
  Work& work_;
  Latch latch_;
  absl::Status status_;
};

}  // namespace

Model::Model(ModelConfig config, std::string base_dir, std::shared_ptr<LoadProgress> progress)
    : parts_(std::move(config), std::move(base_dir), std::move(progress)), execution_(parts_.config.execution) {}

absl::Status Model::Load(ModelConfig config, const std::string& base_dir, std::shared_ptr<Model>* model,
                         std::shared_ptr<LoadProgress> progress) {
  if (progress == nullptr) progress = std::make_shared<LoadProgress>();
  if (config.log_name.empty()) {
    config.log_name = absl::StrCat("model '", config.savedmodel_dir.empty() ? base_dir : config.savedmodel_dir, "'");
  }
  std::shared_ptr<Model> result(new Model(std::move(config), base_dir, std::move(progress)));
  if (absl::Status s = result->parts_.versions.Start(); !s.ok()) return s;
  if (absl::Status s = result->StartFollowing(); !s.ok()) return s;
  *model = std::move(result);
  return absl::OkStatus();
}

absl::Status Model::StartFollowing() {
  if (parts_.config.follow.empty()) return absl::OkStatus();
  LiveModel* const live = version()->live();
  if (live == nullptr) {
    return absl::FailedPreconditionError(absl::StrCat("config key 'follow': '", parts_.config.follow,
                                                      "' found for a model that is not live, expected ",
                                                      "what `graph-tools optimize --live` has written"));
  }
  live->Ref();
  const ModelConfig& config = parts_.config;
  const FollowOptions options = {config.follow, config.follow_store, config.log_name, config.follow_permit_not_finite};
  follower_ = std::make_unique<DeltaFollower>(options, tensorflow::core::RefCountPtr<LiveModel>(live));
  follower_->Hold(parts_.config.follow_epoch);
  if (!version()->precision().precision.empty()) {
    precision_watch_ = std::make_unique<PrecisionWatch>(config.log_name, version());
    follower_->OnEachTurn([this] { precision_watch_->Turn(); });
  }
  return follower_->Start(parts_.versions.load_cancellation());
}

void Model::HoldEpoch(std::optional<int64_t> epoch) {
  if (follower_ != nullptr) follower_->Hold(epoch);
}

std::optional<FollowState> Model::following() const {
  if (follower_ == nullptr) return std::nullopt;
  FollowState state = follower_->state();
  if (precision_watch_ != nullptr) state.precision = precision_watch_->state();
  return state;
}

absl::Status Model::WaitForEpoch(const Work& work) {
  if (follower_ == nullptr) {
    return absl::FailedPreconditionError(
        absl::StrCat("request: epoch ", work.min_epoch, " expected, the model follows no timeline"));
  }
  Latch latch;
  absl::Status status;
  follower_->WaitFor(work.min_epoch, work.deadline_us, [&](const absl::Status& found) {
    status = found;
    latch.Set();
  });
  latch.Wait();
  return status;
}

// The request waits without a thread of its own; the follower starts it.
absl::Status Model::StartAtEpoch(Admission& admission, std::shared_ptr<AsyncWork> work, int session, int64_t start_ns) {
  if (follower_ == nullptr) return WaitForEpoch(*work);
  const int64_t epoch = work->min_epoch, deadline_us = work->deadline_us;
  const auto start = [this, work, session, start_ns](const absl::Status& reached) {
    Admission waited(&parts_.gate);
    const absl::Status status = reached.ok() ? StartAdmitted(waited, work, session, start_ns, /*id=*/nullptr) : reached;
    if (!reached.ok()) parts_.RecordRefusal(reached, start_ns);
    if (!status.ok()) work->Done(status);
  };
  admission.HandOver();
  follower_->WaitFor(epoch, deadline_us, start);
  return absl::OkStatus();
}

absl::Status Model::Run(Work& work) {
  const int64_t start_ns = NowNs();
  if (absl::Status s = parts_.gate.Admit(); !s.ok()) {
    parts_.RecordRefusal(s, start_ns);
    return s;
  }
  Admission admission(&parts_.gate);
  if (work.min_epoch > 0) {
    if (absl::Status s = WaitForEpoch(work); !s.ok()) {
      parts_.RecordRefusal(s, start_ns);
      return s;
    }
  }
  return RunAdmitted(admission, work, start_ns);
}

absl::Status Model::RunAdmitted(Admission& admission, Work& work, int64_t start_ns) {
  const int session = parts_.slots.Pick();
  if (execution() == Execution::kPinned) return RunPinned(admission, work, session, start_ns);
  if (batched_.on() && !work.alone) return batched_.Run(work, session);
  return unbatched_.Run(admission, work, session);
}

absl::Status Model::RunPinned(Admission& admission, Work& work, int session, int64_t start_ns) {
  // A visit would keep the place while rows come from the device.
  if (!batched_.on() && !version()->reads_early()) {
    const SessionSlot::Visit visit(&parts_.slots[session]);
    if (visit.begun()) return unbatched_.Run(admission, work, session);
  }
  const auto waited = std::make_shared<WaitedWork>(work);
  uint64_t id = 0;
  if (absl::Status s = StartAdmitted(admission, waited, session, start_ns, &id); !s.ok()) return s;
  if (work.deadline_us != 0 && !waited->latch().WaitUntil(work.deadline_us)) {
    // A running request stops at its next kernel. This thread waits for it, even if an exception is thrown, because the
    // run uses memory of the caller.
    Attempt([&] { return Cancel(id, DeadlinePassed()); }).IgnoreError();
  }
  waited->latch().Wait();
  return waited->status();
}

absl::Status Model::Start(std::shared_ptr<AsyncWork> work, int preferred_session, uint64_t* id) {
  const int64_t start_ns = NowNs();
  if (absl::Status s = parts_.gate.Admit(); !s.ok()) {
    parts_.RecordRefusal(s, start_ns);
    return s;
  }
  Admission admission(&parts_.gate);
  const int session = preferred_session >= 0 ? preferred_session % parts_.slots.size() : parts_.slots.Pick();
  if (work->min_epoch <= 0) return StartAdmitted(admission, std::move(work), session, start_ns, id);
  if (id != nullptr) *id = 0;
  return StartAtEpoch(admission, std::move(work), session, start_ns);
}

absl::Status Model::StartAdmitted(Admission& admission, std::shared_ptr<AsyncWork> work, int session, int64_t start_ns,
                                  uint64_t* id) {
  const absl::Status status = Attempt([&] {
    return batched_.on() ? batched_.Start(admission, std::move(work), session, id)
                         : unbatched_.Start(admission, std::move(work), session, id);
  });
  if (!status.ok()) parts_.RecordRefusal(status, start_ns);
  return status;
}

absl::Status Model::Cancel(uint64_t id, const absl::Status& status) {
  if (parts_.watch.Stop(id, status)) return absl::OkStatus();
  return absl::NotFoundError(absl::StrCat("request ", id, ": not in flight"));
}

void Model::StopRequests(const absl::Status& status) noexcept {
  drained_ = true;
  parts_.watch.StopAll(status);
}

absl::Status Model::SetCpuset(std::string_view cpuset) {
  if (absl::Status s = parts_.gate.Admit(); !s.ok()) return s;
  const Admission admission(&parts_.gate);
  return parts_.slots.SetCpuset(cpuset);
}

absl::Status Model::Drain(int64_t deadline_us) {
  if (absl::Status s = parts_.gate.BeginDrain(); !s.ok()) return s;
  drained_ = true;
  return parts_.gate.WaitUntilIdle(deadline_us);
}

void Model::Refuse() noexcept {
  parts_.gate.Close();
  const absl::Status freed =
      StatusWithoutThrowing(absl::StatusCode::kCancelled, "request: the model was freed while it waited");
  batched_.Stop(freed);
  parts_.slots.Refuse(freed);
}

void Model::Close() noexcept {
  if (closed_.exchange(true)) return;
  Refuse();
  parts_.versions.Stop();
  if (follower_ != nullptr) {
    follower_->Stop(
        StatusWithoutThrowing(absl::StatusCode::kCancelled, "request: the model was freed while it waited"));
  }
  if (precision_watch_ != nullptr) precision_watch_->Stop();
  parts_.gate.WaitUntilIdleFor(drained_.load() ? 0 : parts_.config.drain_seconds);
  StopRequests(StatusWithoutThrowing(absl::StatusCode::kCancelled, "request: the model was freed while it ran"));
  parts_.slots.Stop();
  parts_.gate.WaitUntilIdle(/*deadline_us=*/0).IgnoreError();
  parts_.outside_calls->Wait();
  parts_.watch.End();
  parts_.versions.Release();
}

}  // namespace processor
