// SPDX-License-Identifier: Apache-2.0
#include "src/host/model_host.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/codec/protocols.h"
#include "src/host/requests/shadow_lane.h"
#include "src/runtime/requests/deadline.h"
#include "src/runtime/requests/exception_status.h"

namespace processor {
namespace {

constexpr int kInstanceShift = 48;  // a request's number: the instance, then the model's own number
constexpr int64_t kLeastRetryUs = 1000;

constexpr int64_t kMemoryRetryUs = 100'000;

// Requests of variants are refused while more important requests wait for so long.
constexpr int64_t kYieldUs = 20'000;

// Estimates when the requests that wait now will have been answered.
int64_t RetryAfterUs(const HostedVersion& version) {
  const int64_t run_us = version.load().recent_run_ns.load(std::memory_order_relaxed) / 1000;
  return std::max(kLeastRetryUs, version.queued() * run_us / version.sessions());
}

}  // namespace

absl::Status ModelHost::Create(const HostOptions& options, std::shared_ptr<ModelHost>* host) {
  std::unique_ptr<HostControl> control;
  if (absl::Status s = HostControl::Start(options, &control); !s.ok()) return s;
  host->reset(new ModelHost(std::move(control)));
  return absl::OkStatus();
}

ModelHost::~ModelHost() { Close(); }

absl::Status ModelHost::Admit(HostCall& call) const {
  const RequestGate::State state = gate_.state();
  if (state == RequestGate::State::kClosed) return gate_.Refusal(state);
  const HostRequest& request = call.request();
  call.method = FindMethod(request.protocol, request.method);
  if (call.method == nullptr) return UnknownMethod(request.protocol, request.method);
  // Methods that run no model are served also while the host drains: clients use them to follow the drain.
  return call.method->codec == nullptr ? absl::OkStatus() : gate_.Refusal(state);
}

absl::Status ModelHost::Route(HostCall& call) {
  const HostRequest& request = call.request();
  RouteRequest wanted;
  if (absl::Status s = SpecOf(call, &wanted.spec); !s.ok()) return s;
  wanted.key = [&call](const RoutingRules& rules) { return RoutingKeyOf(call, rules); };
  const std::shared_ptr<const RouteTable> table = control_->routes();
  const ModelRoutes* routes = nullptr;
  if (absl::Status s = table->Find(wanted.spec.name, &routes); !s.ok()) return s;
  RouteChoice choice;
  if (absl::Status s = ChooseVersion(*routes, wanted, &choice); !s.ok()) return s;
  if (request.only_if_bounded && (request.min_epoch > 0 || !choice.servable->version->model().IsBounded())) {
    call.answer.not_run = true;
    return absl::AbortedError(
        "request: its graph has loops or it waits for an epoch, expected neither, as it was only to be run if bounded");
  }
  call.servable = std::move(choice.servable);
  // A refused request is counted as well; Finish() ends the count of every call that has a servable.
  const int64_t others = call.servable->version->load().in_flight.fetch_add(1);
  call.reason = choice.reason;
  call.answer.arm = ChoiceName(choice.reason);
  call.answer.texts = call.servable->texts;
  if (call.servable->is_baseline) {
    for (const ShadowRoute& shadow : routes->shadows) {
      if (shadow.lane->Samples(shadow.weight)) call.shadows.push_back(shadow.lane);
    }
  }
  return Enter(*table, others, call);
}

absl::Status ModelHost::Enter(const RouteTable& table, int64_t others, HostCall& call) const {
  const Servable& servable = *call.servable;
  const HostedVersion& version = *servable.version;
  if (IsPast(call.deadline_us)) {
    servable.stats->RecordShed(ShedReason::kDeadline);
    return DeadlinePassed();
  }
  const int64_t waiting = version.QueuedOf(others);
  ShedReason reason = ShedReason::kQueue;
  std::string found;
  if (servable.limits.max_in_flight > 0 && others >= servable.limits.max_in_flight) {
    reason = ShedReason::kInFlight;
    found = absl::StrCat(others, " requests in flight, expected fewer than max_in_flight");
  } else if (waiting >= servable.limits.max_queue) {
    found = absl::StrCat(waiting, " requests wait, expected fewer than max_queue");
  } else if (version.load().more_important.Look(others >= version.sessions() && MustYield(table, servable),
                                                call.start_ns)) {
    reason = ShedReason::kPriority;
    found = "a variant with a request in each session, expected room beside what is more important";
  } else {
    return absl::OkStatus();
  }
  servable.stats->RecordShed(reason);
  call.answer.retry_after_us = RetryAfterUs(version);
  return absl::ResourceExhaustedError(
      absl::StrCat("model '", servable.texts->model, "' version ", servable.number, ": ", found));
}

bool ModelHost::MustYield(const RouteTable& table, const Servable& servable) const {
  if (servable.is_baseline) return false;
  int64_t running = 0, longest_us = 0;  // the longest wait for a session
  int64_t run_us = 0;                   // the longest run of a more important version
  const auto look_at = [&](const Servable& other) {
    const VersionLoad& load = other.version->load();
    const int64_t in_flight = load.in_flight.load(std::memory_order_relaxed);
    const int64_t queued = other.version->queued();
    running += in_flight - queued;
    if (in_flight == 0 || (!other.is_baseline && other.priority <= servable.priority)) return;
    // The run time of a version that has not run yet is unknown.
    const int64_t recent_ns = load.recent_run_ns.load(std::memory_order_relaxed);
    const int64_t recent_us = recent_ns == 0 ? kYieldUs : recent_ns / 1000;
    longest_us = std::max(longest_us, queued * recent_us / other.version->sessions());
    run_us = std::max(run_us, recent_us);
  };
  for (const auto& model : table.models()) {
    if (model->baseline != nullptr) look_at(*model->baseline);
    for (const auto& [number, route] : model->versions) {
      if (route.servable != nullptr && route.servable != model->baseline) look_at(*route.servable);
    }
  }
  // Inline requests have no queue: they wait for a CPU.
  if (running > cpus_) longest_us = std::max(longest_us, (running - cpus_) * run_us / cpus_);
  return running >= cpus_ && longest_us >= kYieldUs;
}

void ModelHost::Finish(HostCall& call, const absl::Status& status) noexcept {
  RequestTiming& timing = call.answer.timing;
  if (!status.ok()) call.answer.bytes = Buffer();
  // Memory becomes free when other requests end, at an unknown time.
  if (absl::IsResourceExhausted(status) && call.answer.retry_after_us == 0) call.answer.retry_after_us = kMemoryRetryUs;
  if (call.answer.not_run) return;
  if (call.servable == nullptr) {
    const int protocol = ProtocolPlace(call.request().protocol);
    timing.total_ns = NowNs() - call.start_ns;
    const bool refused = absl::IsUnavailable(status) && call.method != nullptr && call.method->codec != nullptr;
    control_->stats().RecordUnrouted(protocol, status, refused && gate_.state() != RequestGate::State::kServing);
    return;
  }
  const Servable& servable = *call.servable;
  timing = call.timing;
  timing.model_version = servable.number;
  timing.total_ns = NowNs() - call.start_ns;
  const int method = static_cast<int>(call.method - Methods().data());
  Attempt([&] {
    return servable.stats->Record(method, call.reason, status.code(), timing, call.rows), absl::OkStatus();
  }).IgnoreError();
  VersionLoad& load = servable.version->load();
  if (timing.run_ns > 0) load.AddRun(timing.run_ns);
  if (status.ok() && timing.run_ns > 0) {
    for (const auto& lane : call.shadows) lane->Offer(call);
    if (call.sampled != nullptr) servable.log->Offer(std::move(call.sampled));
  }
  load.in_flight.fetch_sub(1);
  call.servable = nullptr;
}

absl::Status ModelHost::Run(HostCall& call) {
  if (absl::Status s = Admit(call); !s.ok()) return s;
  if (call.method->codec == nullptr) return Describe(call);
  if (absl::Status s = Route(call); !s.ok()) return s;
  Model& model = call.servable->version->model();
  if (!AsksForSignature(call.method->codec, call.request().data)) return model.Run(call);
  return call.answer.bytes.Assign(model.DropInSignatureJson()) ? absl::OkStatus() : NoMemoryStatus();
}

absl::Status ModelHost::Process(const HostRequest& request, HostAnswer* answer) {
  const RequestGate::Visit visit(&gate_);
  HostCall call(request);
  call.start_ns = NowNs();
  const absl::Status status = Attempt([&] { return Run(call); });
  Finish(call, status);
  *answer = std::move(call.answer);
  return status;
}

void ModelHost::AsyncCall::Done(const absl::Status& status) noexcept {
  ModelHost* const host = host_;
  host->Finish(*this, status);
  End(status);
  // A thread that frees the host waits for every Leave().
  host->gate_.Leave();
}

absl::Status ModelHost::StartOrAnswer(std::shared_ptr<AsyncCall> call, uint64_t* id) {
  if (absl::Status s = Admit(*call); !s.ok()) return s;
  if (call->method->codec == nullptr) {
    if (absl::Status s = Describe(*call); !s.ok()) return s;
    call->Done(absl::OkStatus());
    return absl::OkStatus();
  }
  if (absl::Status s = Route(*call); !s.ok()) return s;
  // The call may end at once, so nothing of it may be used after Start().
  const std::shared_ptr<const Servable> servable = call->servable;
  Model& model = servable->version->model();
  if (AsksForSignature(call->method->codec, call->request().data)) {
    if (!call->answer.bytes.Assign(model.DropInSignatureJson())) return NoMemoryStatus();
    call->Done(absl::OkStatus());
    return absl::OkStatus();
  }
  uint64_t number = 0;
  if (absl::Status s = model.Start(std::move(call), /*preferred_session=*/-1, &number); !s.ok()) return s;
  *id = uint64_t{servable->instance} << kInstanceShift | number;
  return absl::OkStatus();
}

void ModelHost::Start(std::shared_ptr<AsyncCall> call, uint64_t* id, const absl::Status& fault) noexcept {
  *id = 0;
  call->start_ns = NowNs();
  call->host_ = this;
  gate_.Enter();
  // A call that was started ends by Done(), and only there.
  const absl::Status status = fault.ok() ? Attempt([&] { return StartOrAnswer(call, id); }) : fault;
  if (!status.ok()) call->Done(status);
}

absl::Status ModelHost::Cancel(uint64_t id) {
  const auto version = control_->FindVersion(static_cast<uint16_t>(id >> kInstanceShift));
  const uint64_t number = id & ((uint64_t{1} << kInstanceShift) - 1);
  if (id == 0 || version == nullptr) return absl::NotFoundError(absl::StrCat("request ", id, ": not waiting"));
  return version->model().Cancel(number, absl::CancelledError("request: cancelled"));
}

absl::Status ModelHost::Drain(int64_t deadline_us) {
  if (absl::Status s = gate_.BeginDrain(); !s.ok()) return s;
  control_->SetDraining();
  if (absl::Status s = gate_.WaitUntilIdle(deadline_us); !s.ok()) return s;
  if (deadline_us == 0) {
    control_->request_log().Flush();
  } else {
    control_->request_log().FlushUntil(DeadlinePoint(deadline_us));
  }
  return absl::OkStatus();
}

void ModelHost::Close() noexcept {
  const RequestGate::State before = gate_.Close();
  if (before == RequestGate::State::kClosed) return;
  control_->Stop();
  // If the host was drained, its requests have had their time.
  control_->CloseVersions(/*stop_requests=*/before == RequestGate::State::kDraining);
  gate_.WaitUntilIdle(/*deadline_us=*/0).IgnoreError();
  control_->request_log().Stop();
}

}  // namespace processor
