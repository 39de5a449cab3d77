// SPDX-License-Identifier: Apache-2.0
// Turns a processor_request into work for the runtime. The C function, or the asynchronous request, owns it.
#ifndef PROCESSOR_C_API_REQUEST_WORK_H_
#define PROCESSOR_C_API_REQUEST_WORK_H_

#include <memory>
#include <string>
#include <vector>

#include "processor/processor.h"
#include "src/c_api/result.h"
#include "src/codec/protocols.h"
#include "src/runtime/model/model.h"

namespace processor {

/// A request that ReadRequest() has checked, and how its bytes are read.
struct CheckedRequest {
  processor_request fields;
  const Codec *codec = nullptr;  // null: it has tensors instead of bytes
};

/// Copies a request, checks what can be checked without a model (struct sizes, pointers), and finds its codec.
/// \return INVALID_ARGUMENT, or UNIMPLEMENTED for an unknown protocol.
absl::Status ReadRequest(const processor_request *src, CheckedRequest *dst);

/// Reads a request's tensors or bytes, and puts the outputs into a result.
class RequestReader {
 public:
  /// What `request` points to must stay until the request has ended. `lent`: the caller guarantees that for tensors, so
  /// that they may be used in place.
  RequestReader(const CheckedRequest &request, bool lent)
      : request_(request.fields), codec_(request.codec), lent_(lent) {}

  absl::Status Decode(const ModelVersion &version, DecodedRequest *request);
  absl::Status Encode(const ModelVersion &version, const DecodedRequest &request,
                      std::vector<tensorflow::Tensor> &outputs);

  std::unique_ptr<processor_result> result;

 private:
  absl::Status DecodeTensors(const ModelVersion &version, DecodedRequest *request);
  void EncodeTensors(const DecodedRequest &request, std::vector<tensorflow::Tensor> &outputs);

  const processor_request request_;
  const Codec *const codec_;
  const bool lent_;
};

/// A request as the runtime runs it. `Base` is Work if its caller waits for it, else AsyncWork.
template <typename Base>
class RequestWork : public Base {
 public:
  /// As RequestReader().
  RequestWork(const CheckedRequest &request, bool lent) : reader(request, lent) {
    this->priority = request.fields.priority;
    this->deadline_us = request.fields.deadline_us;
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

/// Returns about how many bytes OwnedRequest will copy of a request.
size_t BytesToOwn(const CheckedRequest &request);

/// Owns copies of everything that a request points at, for a caller who does not wait.
class OwnedRequest {
 public:
  explicit OwnedRequest(const CheckedRequest &request);
  OwnedRequest(const OwnedRequest &) = delete;
  OwnedRequest &operator=(const OwnedRequest &) = delete;

  const CheckedRequest &view() const { return view_; }

 private:
  const char *Keep(const char *text);
  const void *KeepBytes(const void *data, size_t size);
  void KeepStrings(const int64_t *dims, int32_t rank, processor_tensor *tensor);

  CheckedRequest view_;
  std::vector<std::unique_ptr<std::string>> blocks_;
  std::vector<processor_tensor> tensors_;
  std::vector<const char *> outputs_;
};

/// Returns the signature of the model if the request asks for it, otherwise null.
std::unique_ptr<processor_result> SignatureIfAskedFor(const CheckedRequest &request, const Model &model);

}  // namespace processor

#endif  // PROCESSOR_C_API_REQUEST_WORK_H_
