// SPDX-License-Identifier: Apache-2.0
// Turns a processor_request into work for the runtime. The C function, or the asynchronous request, owns it.
#ifndef PROCESSOR_C_API_REQUEST_WORK_H_
#define PROCESSOR_C_API_REQUEST_WORK_H_

#include <memory>
#include <string>
#include <vector>

#include "processor/processor.h"
#include "src/c_api/result.h"
#include "src/runtime/model/model.h"

namespace processor {

/// Copies a request, and checks of it what can be checked without a model: struct sizes, pointers, protocol.
absl::Status ReadRequest(const processor_request *src, processor_request *dst);

/// Reads a request's tensors or bytes, and puts the outputs into a result.
class RequestReader {
 public:
  /// `request` comes from ReadRequest(); what it points at must stay until the request has ended. `lent`: the caller
  /// guarantees that for tensors, so that they may be used where they lie.
  RequestReader(const processor_request &request, bool lent) : request_(request), lent_(lent) {}

  absl::Status Decode(const ModelVersion &version, DecodedRequest *request);
  absl::Status Encode(const ModelVersion &version, const DecodedRequest &request,
                      std::vector<tensorflow::Tensor> &outputs);

  std::unique_ptr<processor_result> result;

 private:
  absl::Status DecodeTensors(const ModelVersion &version, DecodedRequest *request);
  void EncodeTensors(const DecodedRequest &request, std::vector<tensorflow::Tensor> &outputs);

  const processor_request request_;
  const bool lent_;
};

/// A request whose caller waits.
class CallWork : public Work {
 public:
  explicit CallWork(const processor_request &request) : reader(request, /*lent=*/true) {
    priority = request.priority;
    deadline_us = request.deadline_us;
  }
  absl::Status Decode(const ModelVersion &version, DecodedRequest *request) override {
    return reader.Decode(version, request);
  }
  absl::Status Encode(const ModelVersion &version, const DecodedRequest &request,
                      std::vector<tensorflow::Tensor> &outputs) override {
    return reader.Encode(version, request, outputs);
  }

  RequestReader reader;
};

/// Returns about how many bytes OwnedRequest will copy of a request that comes from ReadRequest().
size_t BytesToOwn(const processor_request &request);

/// Owns copies of everything that a request points at, for a caller who does not wait.
class OwnedRequest {
 public:
  explicit OwnedRequest(const processor_request &request);
  OwnedRequest(const OwnedRequest &) = delete;
  OwnedRequest &operator=(const OwnedRequest &) = delete;

  const processor_request &view() const { return view_; }

 private:
  const char *Keep(const char *text);
  const void *KeepBytes(const void *data, size_t size);
  void KeepStrings(const int64_t *dims, int32_t rank, processor_tensor *tensor);

  processor_request view_;
  std::vector<std::unique_ptr<std::string>> blocks_;
  std::vector<processor_tensor> tensors_;
  std::vector<const char *> outputs_;
};

/// The text that an empty request in "eas" asks for; null if `request` is another.
std::unique_ptr<processor_result> AnswerEmptyRequest(const processor_request &request, const Model &model);

}  // namespace processor

#endif  // PROCESSOR_C_API_REQUEST_WORK_H_
