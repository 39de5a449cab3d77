// SPDX-License-Identifier: Apache-2.0
// Serves many models in one process: routes requests by the route table of HostControl, within the limits of each
// version.
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

  /// Answers a request and waits for it. If it fails, `answer` contains what is known.
  absl::Status Process(const HostRequest& request, HostAnswer* answer);

  /// An asynchronous call. It ends by one call of End(), on any thread.
  class AsyncCall : public HostCall {
   public:
    using HostCall::HostCall;
    void Done(const absl::Status& status) noexcept final;
    virtual void End(const absl::Status& status) noexcept = 0;

   private:
    friend class ModelHost;
    ModelHost* host_ = nullptr;
  };

  /// Starts a call, whose End() is called in every case. `id`: for Cancel(); 0 if it has ended. `fault`: why to refuse
  /// the call without reading it; OK to run it.
  void Start(std::shared_ptr<AsyncCall> call, uint64_t* id, const absl::Status& fault = absl::OkStatus()) noexcept;

  /// Ends a started call with CANCELLED at once; if it is running, its work stops at the next kernel.
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
  /// Refuses new requests, cancels waiting ones, waits for running ones as Model::Close() does, and unloads.
  void Close() noexcept;

 private:
  explicit ModelHost(std::unique_ptr<HostControl> control) : control_(std::move(control)) {}
  /// Finds the method of a call.
  /// \return UNIMPLEMENTED; UNAVAILABLE while the host drains, except for methods that run no model.
  absl::Status Admit(HostCall& call) const;
  /// Chooses the version that answers a call, and admits the call.
  absl::Status Route(HostCall& call);
  absl::Status Enter(const RouteTable& table, int64_t others, HostCall& call) const;
  absl::Status Run(HostCall& call);
  /// Answers a method that runs no model: which models are served, their states and signatures.
  absl::Status Describe(HostCall& call) const;
  absl::Status StartOrAnswer(std::shared_ptr<AsyncCall> call, uint64_t* id);
  /// Whether a variant must be refused, because all CPUs are busy and requests of more important versions wait.
  bool MustYield(const RouteTable& table, const Servable& servable) const;
  /// Ends a call: updates statistics and sets the timing in its answer.
  void Finish(HostCall& call, const absl::Status& status) noexcept;

  const std::unique_ptr<HostControl> control_;
  RequestGate gate_{"host", "one that serves"};  // for all methods
  const int64_t cpus_ = static_cast<int64_t>(AllowedCpus().size());
};

}  // namespace processor

#endif  // PROCESSOR_HOST_MODEL_HOST_H_
