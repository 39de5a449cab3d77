// SPDX-License-Identifier: Apache-2.0
#include "src/c_api/request_work.h"

#include "absl/strings/str_cat.h"
#include "src/c_api/boundary.h"
#include "tensorflow/core/framework/tensor_util.h"

namespace processor {

absl::Status ReadRequest(const processor_request *src, CheckedRequest *dst) {
  processor_request &fields = dst->fields;
  if (absl::Status s = ReadStruct(src, "request", &fields); !s.ok()) return s;
  if (fields.protocol != nullptr) {
    dst->codec = FindCodec(fields.protocol);
    if (dst->codec == nullptr) return UnknownMethod(fields.protocol, "");
    if (fields.data == nullptr && fields.size > 0) return absl::InvalidArgumentError("request: data NULL");
    return absl::OkStatus();
  }
  if (fields.inputs == nullptr && fields.num_inputs > 0) return absl::InvalidArgumentError("request: inputs NULL");
  if (fields.outputs == nullptr && fields.num_outputs > 0) return absl::InvalidArgumentError("request: outputs NULL");
  for (size_t i = 0; i < fields.num_outputs; ++i) {
    if (fields.outputs[i] == nullptr) return absl::InvalidArgumentError(absl::StrCat("request: output ", i, " NULL"));
  }
  for (size_t i = 0; i < fields.num_inputs; ++i) {
    processor_tensor tensor;
    if (absl::Status s = ReadStruct(ElementAt(fields.inputs, i), "tensor", &tensor); !s.ok()) return s;
    if (tensor.name == nullptr) return absl::InvalidArgumentError(absl::StrCat("request: input ", i, " has no name"));
  }
  return absl::OkStatus();
}

absl::Status RequestReader::Decode(const ModelVersion &version, DecodedRequest *request) {
  if (codec_ == nullptr) return DecodeTensors(version, request);
  const std::string_view bytes(static_cast<const char *>(request_.data), request_.size);
  const std::string_view signature = request_.signature_name == nullptr ? "" : request_.signature_name;
  return codec_->Decode(bytes, version.signatures(), {signature}, request);
}

absl::Status RequestReader::DecodeTensors(const ModelVersion &version, DecodedRequest *request) {
  const std::string_view name = request_.signature_name == nullptr ? "" : request_.signature_name;
  request->signature = version.signatures().Find(name);
  if (request->signature == nullptr) {
    return absl::NotFoundError(absl::StrCat("signature '", name, "': not in the model"));
  }
  const auto &specs = request->signature->inputs();
  request->feeds.resize(specs.size());
  SeenInputs seen(specs.size());
  FeedArena arena;
  for (size_t i = 0; i < request_.num_inputs; ++i) {
    processor_tensor tensor;
    if (absl::Status s = ReadStruct(ElementAt(request_.inputs, i), "tensor", &tensor); !s.ok()) return s;
    const int at = request->signature->FindInput(tensor.name);
    if (at < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("input '", tensor.name, "': not in signature '", request->signature->name(), "'"));
    }
    const bool may_borrow = lent_ && version.may_borrow_inputs();
    if (absl::Status s = ToTensor(tensor, specs[at], may_borrow, &arena, &request->feeds[at]); !s.ok()) return s;
    seen[at] = true;
  }
  OutputKeys keys;
  for (size_t i = 0; i < request_.num_outputs; ++i) keys.emplace_back(request_.outputs[i]);
  return FinishRequest(seen, keys, request);
}

absl::Status RequestReader::Encode(const ModelVersion &version, const DecodedRequest &request,
                                   std::vector<tensorflow::Tensor> &outputs) {
  auto made = std::make_unique<processor_result>();
  result = std::move(made);
  if (codec_ == nullptr) {
    for (size_t i = 0; i < outputs.size(); ++i) {
      if (outputs[i].dtype() == tensorflow::DT_STRING || tensorflow::DataTypeSize(outputs[i].dtype()) > 0) continue;
      return absl::UnimplementedError(absl::StrCat("output '", request.signature->outputs()[request.fetches[i]].alias,
                                                   "': dtype ", tensorflow::DataType_Name(outputs[i].dtype()),
                                                   ", expected a dense one"));
    }
    EncodeTensors(request, outputs);
    return absl::OkStatus();
  }
  result->holds_bytes = true;
  ResponseContext context;
  context.model_version = version.source().number;
  Response response;
  absl::Status status = codec_->Encode(request, outputs, context, &response);
  result->bytes = std::move(response.body);
  return status;
}

void RequestReader::EncodeTensors(const DecodedRequest &request, std::vector<tensorflow::Tensor> &outputs) {
  for (size_t i = 0; i < outputs.size(); ++i) {
    tensorflow::Tensor &output = outputs[i];
    // A graph may return an input unchanged, and the result outlives the memory of the caller.
    for (const tensorflow::Tensor &feed : request.feeds) {
      if (lent_ && output.SharesBufferWith(feed)) output = tensorflow::tensor::DeepCopy(output);
    }
    std::string name = request.fetch_keys.empty() ? request.signature->outputs()[request.fetches[i]].alias
                                                  : std::string(request.fetch_keys[i]);
    result->tensors.emplace_back(std::move(name), std::move(output));
  }
}

const char *OwnedRequest::Keep(const char *text) {
  if (text == nullptr) return nullptr;
  blocks_.push_back(std::make_unique<std::string>(text));
  return blocks_.back()->c_str();
}

const void *OwnedRequest::KeepBytes(const void *data, size_t size) {
  if (data == nullptr || size == 0) return nullptr;
  blocks_.push_back(std::make_unique<std::string>(static_cast<const char *>(data), size));
  return blocks_.back()->data();
}

// Copies only the bytes of this tensor, since the strings of several tensors may lie in one block. Malformed offsets
// are kept malformed, so that reading the tensor refuses them.
void OwnedRequest::KeepStrings(const int64_t *dims, int32_t rank, processor_tensor *tensor) {
  size_t elements = 1;
  for (int32_t d = 0; d < rank; ++d) {
    if (dims[d] < 0 || __builtin_mul_overflow(elements, static_cast<size_t>(dims[d]), &elements)) elements = 0;
  }
  if (elements > (size_t{1} << 40)) elements = 0;
  std::vector<int64_t> offsets(tensor->offsets, tensor->offsets + elements + 1);
  const int64_t begin = offsets.front(), end = offsets.back();
  if (begin >= 0 && begin <= end && static_cast<uint64_t>(end) <= tensor->size && tensor->data != nullptr) {
    tensor->data = KeepBytes(static_cast<const char *>(tensor->data) + begin, static_cast<size_t>(end - begin));
    tensor->size = static_cast<size_t>(end - begin);
    for (int64_t &offset : offsets) offset -= begin;
  } else if (begin != end) {
    tensor->data = nullptr;
    tensor->size = 0;
  }
  tensor->offsets = static_cast<const int64_t *>(KeepBytes(offsets.data(), sizeof(int64_t) * offsets.size()));
}

size_t BytesToOwn(const CheckedRequest &request) {
  size_t bytes = request.fields.size;
  for (size_t i = 0; request.codec == nullptr && i < request.fields.num_inputs; ++i) {
    processor_tensor tensor;
    ReadStruct(ElementAt(request.fields.inputs, i), "tensor", &tensor).IgnoreError();  // ReadRequest() has checked it
    bytes += tensor.size;
  }
  return bytes;
}

OwnedRequest::OwnedRequest(const CheckedRequest &checked) : view_(checked) {
  const processor_request &request = checked.fields;
  processor_request &view = view_.fields;
  view.protocol = nullptr;  // the codec stands for it
  view.signature_name = Keep(request.signature_name);
  view.data = KeepBytes(request.data, request.size);
  if (checked.codec != nullptr) return;
  for (size_t i = 0; i < request.num_outputs; ++i) outputs_.push_back(Keep(request.outputs[i]));
  for (size_t i = 0; i < request.num_inputs; ++i) {
    processor_tensor tensor;
    ReadStruct(ElementAt(request.inputs, i), "tensor", &tensor).IgnoreError();  // ReadRequest() has checked it
    tensor.struct_size = sizeof(processor_tensor);
    tensor.name = Keep(tensor.name);
    const int64_t *dims = tensor.dims;
    const int32_t rank = dims == nullptr || tensor.rank < 0 || tensor.rank > 254 ? 0 : tensor.rank;
    tensor.dims = static_cast<const int64_t *>(KeepBytes(dims, sizeof(int64_t) * static_cast<size_t>(rank)));
    if (tensor.offsets == nullptr) {
      tensor.data = KeepBytes(tensor.data, tensor.size);
    } else {
      KeepStrings(dims, rank, &tensor);
    }
    tensors_.push_back(tensor);
  }
  view.outputs = outputs_.data();
  view.inputs = tensors_.data();
}

std::unique_ptr<processor_result> SignatureIfAskedFor(const CheckedRequest &request, const Model &model) {
  const std::string_view bytes(static_cast<const char *>(request.fields.data), request.fields.size);
  return AsksForSignature(request.codec, bytes) ? TextResult(model.DropInSignatureJson()) : nullptr;
}

}  // namespace processor
