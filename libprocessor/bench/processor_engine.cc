// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <stdexcept>
#include <string>

#include "engine.h"
#include "library.h"

namespace processor::bench {
namespace {

// A JSON string. Paths and names here hold no control characters.
std::string Quote(const std::string& text) {
  std::string quoted = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') quoted += '\\';
    quoted += c;
  }
  return quoted + '"';
}

// The members of a JSON object, without its braces.
std::string Members(const std::string& object) {
  const size_t begin = object.find('{'), end = object.rfind('}');
  if (begin == std::string::npos || end == std::string::npos ||
      object.find_first_not_of(" \t\r\n{}") == std::string::npos) {
    return "";
  }
  return object.substr(begin + 1, end - begin - 1);
}

// The keys that the drop-in contract cannot do without, and the caller's.
std::string DropInConfig(const EngineOptions& options) {
  std::string config = "{\"signature_name\": " + Quote(options.signature) +
                       ", \"savedmodel_dir\": " + Quote(options.model) +
                       ", \"feature_store_type\": \"local\", \"serialize_protocol\": \"protobuf\""
                       ", \"model_store_type\": \"local\"";
  const std::string members = Members(options.config);
  return config + (members.empty() ? "" : ", " + members) + "}";
}

class ProcessorEngine : public Engine {
 public:
  ProcessorEngine(const EngineOptions& options, const std::vector<std::string>& requests)
      : library_(options.library), options_(options), requests_(requests) {}

  ~ProcessorEngine() override { library_.model_free(model_); }

  NamedTensors Answer(size_t index) override {
    const std::string response = Respond(index);
    return ReadResponse(response, options_.protocol);
  }

  std::string Statistics() override {
    processor_result* result = nullptr;
    processor_error error = {};
    if (library_.model_stats(model_, &result, &error) != PROCESSOR_OK) throw std::runtime_error(error.message);
    const void* data = nullptr;
    size_t size = 0;
    library_.result_bytes(result, &data, &size);
    std::string text(static_cast<const char*>(data), size);
    library_.result_free(result);
    return text;
  }

 protected:
  /// The serialized response.
  virtual std::string Respond(size_t index) = 0;

  const Library library_;
  const EngineOptions options_;
  const std::vector<std::string>& requests_;
  processor_model* model_ = nullptr;
};

/// Through the drop-in contract, as an existing host calls it.
class DropInEngine : public ProcessorEngine {
 public:
  DropInEngine(const EngineOptions& options, const std::vector<std::string>& requests)
      : ProcessorEngine(options, requests) {
    int state = -1;
    model_ = static_cast<processor_model*>(library_.initialize("", DropInConfig(options).c_str(), &state));
    if (state != 0 || model_ == nullptr) throw std::runtime_error("processor: initialize failed, see the log");
  }

  void Run(size_t index) override {
    void* data = nullptr;
    int size = 0;
    const int code = Call(index, &data, &size);
    if (code != 200) Fail(data, size);
    std::free(data);
  }

 protected:
  std::string Respond(size_t index) override {
    void* data = nullptr;
    int size = 0;
    if (Call(index, &data, &size) != 200) Fail(data, size);
    std::string response(static_cast<const char*>(data), static_cast<size_t>(size));
    std::free(data);
    return response;
  }

 private:
  int Call(size_t index, void** data, int* size) {
    const std::string& request = requests_[index];
    return library_.process(model_, request.data(), static_cast<int>(request.size()), data, size);
  }

  [[noreturn]] static void Fail(void* data, int size) {
    const std::string text(static_cast<const char*>(data), static_cast<size_t>(size));
    std::free(data);
    throw std::runtime_error("processor: " + text);
  }
};

/// Through the modern ABI, for the protocols that the drop-in contract does not speak.
class BytesEngine : public ProcessorEngine {
 public:
  BytesEngine(const EngineOptions& options, const std::vector<std::string>& requests)
      : ProcessorEngine(options, requests) {
    processor_load_options load = {};
    load.struct_size = sizeof load;
    load.abi_version = PROCESSOR_ABI_VERSION;
    load.path = options.model.c_str();
    load.config = options.config.empty() ? nullptr : options.config.c_str();
    processor_error error = {};
    if (library_.model_load(&load, &model_, &error) != PROCESSOR_OK) {
      throw std::runtime_error(std::string("processor: ") + error.message);
    }
  }

  void Run(size_t index) override { library_.result_free(Call(index)); }

 protected:
  std::string Respond(size_t index) override {
    processor_result* result = Call(index);
    const void* data = nullptr;
    size_t size = 0;
    library_.result_bytes(result, &data, &size);
    std::string response(static_cast<const char*>(data), size);
    library_.result_free(result);
    return response;
  }

 private:
  processor_result* Call(size_t index) {
    processor_request request = {};
    request.struct_size = sizeof request;
    request.protocol = options_.protocol.c_str();
    request.data = requests_[index].data();
    request.size = requests_[index].size();
    request.signature_name = options_.signature.c_str();
    processor_result* result = nullptr;
    processor_error error;
    if (library_.model_run(model_, &request, &result, &error) != PROCESSOR_OK) {
      throw std::runtime_error(std::string("processor: ") + error.message);
    }
    return result;
  }
};

}  // namespace

std::unique_ptr<Engine> MakeProcessorEngine(const EngineOptions& options, const std::vector<std::string>& requests) {
  if (options.protocol == "eas") return std::make_unique<DropInEngine>(options, requests);
  return std::make_unique<BytesEngine>(options, requests);
}

}  // namespace processor::bench
