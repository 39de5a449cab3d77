// SPDX-License-Identifier: Apache-2.0
// The modern ABI's hosts.
#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "processor/processor.h"
#include "src/base/byte_budget.h"
#include "src/base/published.h"
#include "src/c_api/boundary.h"
#include "src/c_api/completion.h"
#include "src/c_api/quarantine.h"
#include "src/c_api/result.h"
#include "src/codec/kserve_parameters.h"
#include "src/codec/message_text.h"
#include "src/host/model_host.h"

struct processor_host {
  processor::Published<processor::ModelHost> host;  // null once freed
};

namespace {

using processor::Guard;
using processor::HostAnswer;
using processor::HostRequest;
using processor::ModelHost;

constexpr char kRoutingKey[] = "x-routing-key";
constexpr char kMinEpoch[] = "x-min-epoch";
constexpr char kHeaderLength[] = "inference-header-content-length";

std::string_view ViewOrEmpty(const char *text) { return text == nullptr ? std::string_view() : std::string_view(text); }

absl::Status GetHost(const processor_host *handle, std::shared_ptr<ModelHost> *host) {
  if (handle == nullptr) return absl::InvalidArgumentError("host: NULL, expected a handle");
  *host = handle->host.Read();
  if (*host == nullptr) return absl::FailedPreconditionError("host: freed, expected one that serves");
  return absl::OkStatus();
}

absl::Status ReadHostRequest(const processor_host_request *given, HostRequest *dst) {
  processor_host_request src;
  if (absl::Status s = processor::ReadStruct(given, "request", &src); !s.ok()) return s;
  if (src.protocol == nullptr) return absl::InvalidArgumentError("request: protocol NULL");
  if (src.data == nullptr && src.size > 0) return absl::InvalidArgumentError("request: data NULL");
  if (src.metadata == nullptr && src.num_metadata > 0) return absl::InvalidArgumentError("request: metadata NULL");
  if (src.model_version < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("request: model_version ", src.model_version, ", expected 1 or more, or 0 for none"));
  }
  dst->priority = src.priority;
  dst->deadline_us = src.deadline_us;
  dst->protocol = src.protocol;
  dst->method = ViewOrEmpty(src.method);
  dst->data = std::string_view(static_cast<const char *>(src.data), src.size);
  dst->model_name = ViewOrEmpty(src.model_name);
  dst->model_version = src.model_version;
  dst->version_label = ViewOrEmpty(src.version_label);
  dst->only_if_bounded = src.only_if_bounded != 0;
  for (size_t i = 0; i < src.num_metadata; ++i) {
    const processor_pair &pair = src.metadata[i];
    if (pair.key == nullptr || (pair.value == nullptr && pair.value_size > 0)) {
      return absl::InvalidArgumentError(absl::StrCat("request: metadata ", i, " NULL"));
    }
    const std::string_view value(static_cast<const char *>(pair.value), pair.value_size);
    if (absl::EqualsIgnoreCase(pair.key, kRoutingKey)) dst->routing_key = value;
    if (absl::EqualsIgnoreCase(pair.key, kMinEpoch) &&
        (!absl::SimpleAtoi(value, &dst->min_epoch) || dst->min_epoch < 0)) {
      return absl::InvalidArgumentError(absl::StrCat(
          "request: metadata '", kMinEpoch, "' '", processor::Printable(value), "', expected the number of an epoch"));
    }
    if (!absl::EqualsIgnoreCase(pair.key, kHeaderLength)) continue;
    size_t length = 0;
    if (!absl::SimpleAtoi(value, &length)) {
      return absl::InvalidArgumentError(absl::StrCat("request: metadata '", kHeaderLength, "' '",
                                                     processor::Printable(value), "', expected a number of bytes"));
    }
    dst->header_length = length == 0 ? processor::kNoHeader : std::min(length, processor::kNoHeader - 1);
  }
  return absl::OkStatus();
}

void FillResult(HostAnswer &&answer, processor_result *result) noexcept {
  result->holds_bytes = true;
  result->bytes = std::move(answer.bytes);
  result->timing = answer.timing;
  result->texts = std::move(answer.texts);
  result->arm = answer.arm;
  result->retry_after_us = answer.retry_after_us;
  result->header_length = answer.header_length;
}

// Copies of the memory that a request points to, for a caller that does not wait.
struct OwnedTexts {
  /// `claim`: the memory of the copied bytes.
  OwnedTexts(const HostRequest &request, processor::ByteClaim given)
      : claim(std::move(given)),
        protocol(request.protocol),
        method(request.method),
        data(request.data),
        model_name(request.model_name),
        version_label(request.version_label),
        routing_key(request.routing_key.value_or("")),
        view(request) {
    view.protocol = protocol;
    view.method = method;
    view.data = data;
    view.model_name = model_name;
    view.version_label = version_label;
    if (view.routing_key.has_value()) view.routing_key = routing_key;
  }
  OwnedTexts(const OwnedTexts &) = delete;
  OwnedTexts &operator=(const OwnedTexts &) = delete;

  const processor::ByteClaim claim;
  const std::string protocol, method, data, model_name, version_label, routing_key;
  HostRequest view;
};

// A base class, so that it is constructed before the call that refers to it.
struct TextsHolder {
  TextsHolder(const HostRequest &request, processor::ByteClaim claim) : texts(request, std::move(claim)) {}
  const OwnedTexts texts;
};

class TargetCall : private TextsHolder, public ModelHost::AsyncCall {
 public:
  TargetCall(const HostRequest &request, const processor_target &target, processor::ByteClaim claim)
      : TextsHolder(request, std::move(claim)),
        AsyncCall(texts.view),
        completion_(target),
        result_(std::make_unique<processor_result>()) {
    may_end_early = true;
  }

  void End(const absl::Status &status) noexcept override {
    FillResult(std::move(answer), result_.get());
    completion_.Tell(status, std::move(result_));
  }

 private:
  processor::Completion completion_;
  std::unique_ptr<processor_result> result_;  // allocated before the request runs
};

// Makes a result of a text that describes the host.
template <typename Question>
processor_status AskHost(const processor_host *handle, processor_result **result, processor_error *error,
                         Question question) {
  return Guard(error, [&]() -> absl::Status {
    if (result == nullptr) return absl::InvalidArgumentError("result: NULL, expected where to put it");
    *result = nullptr;
    std::shared_ptr<ModelHost> host;
    if (absl::Status s = GetHost(handle, &host); !s.ok()) return s;
    *result = processor::TextResult(question(*host)).release();
    return absl::OkStatus();
  });
}

}  // namespace

extern "C" {

processor_status processor_host_create(const processor_host_options *given, processor_host **handle,
                                       processor_error *error) {
  return Guard(error, [&]() -> absl::Status {
    if (handle == nullptr) return absl::InvalidArgumentError("host: NULL, expected where to put the handle");
    *handle = nullptr;
    processor_host_options src;
    if (absl::Status s = processor::ReadStruct(given, "options", &src); !s.ok()) return s;
    if (absl::Status s = processor::CheckAbiVersion(src.abi_version); !s.ok()) return s;
    processor::HostOptions options;
    options.state_dir = ViewOrEmpty(src.state_dir);
    options.host_id = ViewOrEmpty(src.host_id);
    if (src.maintenance_cpus != nullptr) options.maintenance_cpus = src.maintenance_cpus;
    options.owns_process = src.owns_process != 0;
    if (src.max_request_bytes_in_flight != 0) {
      if (absl::Status s = processor::SetRequestBytes(src.max_request_bytes_in_flight); !s.ok()) return s;
    }
    std::shared_ptr<ModelHost> host;
    if (absl::Status s = ModelHost::Create(options, &host); !s.ok()) return s;
    processor_host *made = processor::Quarantine<processor_host>::Global().Take();
    made->host.Exchange(std::move(host));
    *handle = made;
    return absl::OkStatus();
  });
}

processor_status processor_host_process(const processor_host *handle, const processor_host_request *given,
                                        processor_result **result, processor_error *error) {
  return Guard(error, [&]() -> absl::Status {
    if (result == nullptr) return absl::InvalidArgumentError("result: NULL, expected where to put it");
    *result = nullptr;
    HostRequest request;
    if (absl::Status s = ReadHostRequest(given, &request); !s.ok()) return s;
    std::shared_ptr<ModelHost> host;
    if (absl::Status s = GetHost(handle, &host); !s.ok()) return s;
    HostAnswer answer;
    const absl::Status status = host->Process(request, &answer);
    if (answer.not_run) return status;
    auto made = std::make_unique<processor_result>();
    FillResult(std::move(answer), made.get());
    *result = made.release();
    return status;
  });
}

processor_status processor_host_process_async(const processor_host *handle, const processor_host_request *given,
                                              const processor_target *given_target, uint64_t *request_id,
                                              processor_error *error) {
  return Guard(error, [&]() -> absl::Status {
    HostRequest request;
    processor_target target;
    if (absl::Status s = ReadHostRequest(given, &request); !s.ok()) return s;
    if (absl::Status s = processor::ReadTarget(given_target, &target); !s.ok()) return s;
    std::shared_ptr<ModelHost> host;
    if (absl::Status s = GetHost(handle, &host); !s.ok()) return s;
    uint64_t id = 0;
    request.only_if_bounded = false;
    processor::ByteClaim claim(processor::ByteBudget::Use::kTensors);
    const absl::Status room = claim.Add("request", request.data.size());
    if (!room.ok()) request.data = {};  // refused without a copy
    host->Start(std::make_shared<TargetCall>(request, target, std::move(claim)), &id, room);
    if (request_id != nullptr) *request_id = id;
    return absl::OkStatus();
  });
}

processor_status processor_host_cancel(const processor_host *handle, uint64_t request_id, processor_error *error) {
  return Guard(error, [&]() -> absl::Status {
    std::shared_ptr<ModelHost> host;
    if (absl::Status s = GetHost(handle, &host); !s.ok()) return s;
    return host->Cancel(request_id);
  });
}

processor_status processor_host_status(const processor_host *handle, processor_result **result,
                                       processor_error *error) {
  return AskHost(handle, result, error, [](const ModelHost &host) { return host.StatusText(); });
}

processor_status processor_host_metrics(const processor_host *handle, processor_result **result,
                                        processor_error *error) {
  return AskHost(handle, result, error, [](const ModelHost &host) { return host.MetricsText(); });
}

processor_status processor_host_set_endpoint(const processor_host *handle, const char *name, const char *address,
                                             processor_error *error) {
  return Guard(error, [&]() -> absl::Status {
    if (ViewOrEmpty(name).empty())
      return absl::InvalidArgumentError("endpoint: no name, expected one such as \"grpc\"");
    std::shared_ptr<ModelHost> host;
    if (absl::Status s = GetHost(handle, &host); !s.ok()) return s;
    host->SetEndpoint(name, std::string(ViewOrEmpty(address)));
    return absl::OkStatus();
  });
}

processor_status processor_host_claim_port(const processor_host *handle, const char *address, int32_t port,
                                           processor_error *error) {
  return Guard(error, [&]() -> absl::Status {
    std::shared_ptr<ModelHost> host;
    if (absl::Status s = GetHost(handle, &host); !s.ok()) return s;
    return host->ClaimPort(std::string(ViewOrEmpty(address)), port);
  });
}

processor_status processor_host_prepare_end(const processor_host *handle, processor_error *error) {
  return Guard(error, [&]() -> absl::Status {
    std::shared_ptr<ModelHost> host;
    if (absl::Status s = GetHost(handle, &host); !s.ok()) return s;
    host->PrepareEnd();
    return absl::OkStatus();
  });
}

processor_status processor_host_drain(const processor_host *handle, int64_t deadline_us, processor_error *error) {
  return Guard(error, [&]() -> absl::Status {
    std::shared_ptr<ModelHost> host;
    if (absl::Status s = GetHost(handle, &host); !s.ok()) return s;
    return host->Drain(deadline_us);
  });
}

void processor_host_free(processor_host *handle) {
  Guard(nullptr, [&] {
    if (handle == nullptr) return absl::OkStatus();
    const std::shared_ptr<ModelHost> host = handle->host.Exchange(nullptr);
    if (host == nullptr) return absl::OkStatus();
    host->Close();
    processor::Quarantine<processor_host>::Global().Put(handle);
    return absl::OkStatus();
  });
}

}  // extern "C"
