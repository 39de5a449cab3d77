// SPDX-License-Identifier: Apache-2.0
// Runs the requests of a model one by one: on the thread of the caller, or on a thread of a session's slot. The model owns
// it.
#ifndef PROCESSOR_RUNTIME_MODEL_UNBATCHED_REQUESTS_H_
#define PROCESSOR_RUNTIME_MODEL_UNBATCHED_REQUESTS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/status.h"
#include "src/base/kept_objects.h"
#include "src/runtime/model/model_parts.h"
#include "src/runtime/model/request_call.h"
#include "src/runtime/model/work.h"

namespace processor {

/// Any thread may call. The requests have passed the gate of the model.
class UnbatchedRequests {
 public:
  /// The parts are borrowed.
  explicit UnbatchedRequests(ModelParts* parts) : parts_(*parts) {}

  /// Runs a request on this thread.
  absl::Status Run(Admission& admission, Work& work, int session);
  /// Queues a request at the slot of a session. `id`: may be null.
  /// \return why it was not accepted; Done() is not called then.
  absl::Status Start(Admission& admission, std::shared_ptr<AsyncWork> work, int session, uint64_t* id);

 private:
  class InlineCall;
  class SlotTask;
  class Lent;
  struct Running;

  /// A decoded request and its outputs. The next request uses the same lists, so that they are not allocated again.
  struct Tensors {
    DecodedRequest request;
    std::vector<tensorflow::Tensor> outputs;
  };

  // They catch exceptions, because nothing above a slot's thread would.
  absl::Status Read(int session, Work& work, RequestCall& call, Running* running) noexcept;
  absl::Status Execute(absl::Status read, Work& work, RequestCall& call, Running* running) noexcept;

  ModelParts& parts_;
  KeptObjects<Tensors> tensors_;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_MODEL_UNBATCHED_REQUESTS_H_
