// SPDX-License-Identifier: Apache-2.0
// Many models in one process: answers requests by the table that HostControl keeps, within the limits of each version.
#ifndef PROCESSOR_HOST_MODEL_HOST_H_
#define PROCESSOR_HOST_MODEL_HOST_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "src/host/control/host_control.h"
#include "src/host/reports/host_metrics.h"
#include "src/host/requests/host_call.h"
#include "src/runtime/requests/request_gate.h"

namespace processor {

/// Every function may be called from any thread.
class ModelHost {
 public:
  static absl::Status Create(const HostOptions& options, std::shared_ptr<ModelHost>* host);
  ~ModelHost();

  /// Answers a request and waits for it. `answer` is filled as far as it is known also if that fails.
  absl::Status Process(const HostRequest& request, HostAnswer* answer);

  /// A call that ends on any thread: exactly once, by `End()`.
  class AsyncCall : public HostCall {
   public:
    using HostCall::HostCall;
    void Done(const absl::Status& status) noexcept final;
    virtual void End(const absl::Status& status) noexcept = 0;

   private:
    friend class ModelHost;
    ModelHost* host_ = nullptr;
  };

  /// Starts a call, whose End() comes in any case. `id`: for Cancel(); 0 if it has ended. `fault`: why it is refused
  /// without being looked at.
  void Start(std::shared_ptr<AsyncCall> call, uint64_t* id, const absl::Status& fault = absl::OkStatus()) noexcept;

  /// Ends a started call with CANCELLED at once; what runs of it stops at its next kernel.
  /// \return NOT_FOUND if it has ended.
  absl::Status Cancel(uint64_t id);

  std::string StatusText() const { return ActualJson(control_->Actual()); }
  std::string MetricsText() const {
    return HostMetricsText(control_->Actual(), *control_->routes(), control_->stats());
  }
  void SetEndpoint(const std::string& name, const std::string& address) { control_->SetEndpoint(name, address); }
  absl::Status ClaimPort(const std::string& address, int port) { return control_->ClaimPort(address, port); }
  void PrepareEnd() { control_->PrepareEnd(); }
  absl::Status Drain(int64_t deadline_us);
  /// Refuses new requests, cancels waiting ones, waits for running ones as Model::Close() does, unloads.
  void Close() noexcept;

 private:
  explicit ModelHost(std::unique_ptr<HostControl> control) : control_(std::move(control)) {}
  /// Finds the method of a call. \return UNIMPLEMENTED, or UNAVAILABLE while draining, except for questions.
  absl::Status Admit(HostCall& call) const;
  /// Finds who answers a call, and lets it in.
  absl::Status Route(HostCall& call);
  absl::Status Enter(const RouteTable& table, int64_t others, HostCall& call) const;
  absl::Status Run(HostCall& call);
  /// Answers a question: what is served, in which state, with which signatures.
  absl::Status Describe(HostCall& call) const;
  absl::Status StartOrAnswer(std::shared_ptr<AsyncCall> call, uint64_t* id);
  /// Is a variant to step back, since all CPUs are busy and something more important waits?
  bool MustYield(const RouteTable& table, const Servable& servable) const;
  /// After the call: counts it and says in its answer how it went.
  void Finish(HostCall& call, const absl::Status& status) noexcept;

  const std::unique_ptr<HostControl> control_;
  RequestGate gate_{"host", "one that serves"};  // questions pass it as well
  const int64_t cpus_ = static_cast<int64_t>(AllowedCpus().size());
};

}  // namespace processor

#endif  // PROCESSOR_HOST_MODEL_HOST_H_
