// SPDX-License-Identifier: Apache-2.0
// One request to a host, from its bytes to its response. The caller of the host owns it; one thread at a time uses it.
#ifndef PROCESSOR_HOST_REQUESTS_HOST_CALL_H_
#define PROCESSOR_HOST_REQUESTS_HOST_CALL_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "src/codec/buffer.h"
#include "src/codec/protocols.h"
#include "src/host/request_log/request_log.h"
#include "src/host/requests/route_table.h"
#include "src/runtime/model/work.h"
#include "src/runtime/stats/stats.h"

namespace processor {

/// A request as the host program passes it. All views are borrowed.
struct HostRequest {
  int32_t priority = 0;
  int64_t deadline_us = 0;
  int64_t min_epoch = 0;
  std::string_view protocol;
  std::string_view method;  // "": the default method of the protocol
  std::string_view data;
  std::string_view model_name;
  int64_t model_version = 0;  // 0: any
  std::string_view version_label;
  std::optional<std::string_view> routing_key;
  /// Of "kserve_json": the size of the JSON before the binary data; 0 if everything is JSON, kNoHeader
  /// (kserve_parameters.h) if nothing is.
  size_t header_length = 0;
  /// Whether to run it only if its work is bounded by its size.
  bool only_if_bounded = false;
};

/// The response to a request. Texts are shared, so that a response keeps no model alive.
struct HostAnswer {
  Buffer bytes;
  size_t header_length = 0;  // as in a request; 0: everything is JSON
  RequestTiming timing;
  std::shared_ptr<const AnswerTexts> texts;  // null if no model was found
  const char* arm = nullptr;
  int64_t retry_after_us = 0;
  bool not_run = false;  // because of `only_if_bounded`
};

/// A request to a version, as the runtime runs it.
class HostCall : public AsyncWork {
 public:
  /// The memory of `request` must stay unchanged until the call has ended.
  explicit HostCall(const HostRequest& request) : request_(request) {
    priority = request.priority;
    deadline_us = request.deadline_us;
    min_epoch = request.min_epoch;
  }

  absl::Status Decode(const ModelVersion& version, DecodedRequest* request) override;
  absl::Status Encode(const ModelVersion& version, const DecodedRequest& request,
                      std::vector<tensorflow::Tensor>& outputs) override;
  /// Does nothing: the thread that waits for the call gets the status as a return value.
  void Done(const absl::Status&) noexcept override {}

  const HostRequest& request() const { return request_; }

  HostAnswer answer;
  /// Set before the call is routed.
  const Method* method = nullptr;
  /// The version that answers it; held until the call has ended.
  std::shared_ptr<const Servable> servable;
  ChoiceReason reason = ChoiceReason::kBaseline;
  /// The lanes that get a copy of it, and the scores of the answer, with which they compare.
  std::vector<std::shared_ptr<ShadowLane>> shadows;
  tensorflow::Tensor scores;
  int64_t rows = 0;  // of the first input
  /// Its copy for the request log; null if it does not belong to the sample.
  std::unique_ptr<SampledRequest> sampled;
  int64_t start_ns = 0;

 private:
  const HostRequest request_;
};

/// Finds the model that a call is for, from its bytes and its parameters.
/// \return INVALID_ARGUMENT for bytes that are not a request of its method, or that contradict the parameters.
absl::Status SpecOf(const HostCall& call, ModelSpecView* spec);

/// Returns the key that a call is routed by: its own, else the value of the input that the rules name.
std::optional<std::string> RoutingKeyOf(const HostCall& call, const RoutingRules& rules);

}  // namespace processor

#endif  // PROCESSOR_HOST_REQUESTS_HOST_CALL_H_
