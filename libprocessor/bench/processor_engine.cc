// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <cstdlib>
#include <stdexcept>
#include <string>
#include <thread>

#include "engine.h"
#include "library.h"
#include "nlohmann/json.hpp"

namespace processor::bench {
namespace {

using nlohmann::json;

constexpr std::chrono::seconds kLoading{300};

/// What all that the library serves have in common.
class LibraryEngine : public Engine {
 public:
  LibraryEngine(const EngineOptions& options, const std::vector<std::string>& requests)
      : library_(options.library), options_(options), requests_(requests), model_(nullptr, library_.model_free) {}

  std::string Statistics() override {
    if (model_ == nullptr) return "null";
    processor_result* result = nullptr;
    processor_error error = {};
    Library::Check(library_.model_stats(model_.get(), &result, &error), error);
    return library_.Bytes(ResultHandle(result, library_.result_free));
  }

 protected:
  const Library library_;
  const EngineOptions options_;
  const std::vector<std::string>& requests_;
  ModelHandle model_;  // null if a host owns it
};

/// Through the drop-in contract, as an existing host calls it.
class DropInEngine : public LibraryEngine {
 public:
  DropInEngine(const EngineOptions& options, const std::vector<std::string>& requests)
      : LibraryEngine(options, requests) {
    // The keys that the contract cannot do without, and the caller's.
    json config = {{"signature_name", options.signature},
                   {"savedmodel_dir", options.model},
                   {"feature_store_type", "local"},
                   {"model_store_type", "local"},
                   {"serialize_protocol", "protobuf"}};
    if (!options.config.empty()) config.update(json::parse(options.config));
    int state = -1;
    model_.reset(static_cast<processor_model*>(library_.initialize("", config.dump().c_str(), &state)));
    if (state != 0 || model_ == nullptr) throw std::runtime_error("processor: initialize failed, see the log");
  }

  void Run(size_t index) override { Process(index); }

  NamedTensors Answer(size_t index) override {
    const Response response = Process(index);
    return ReadResponse({static_cast<const char*>(response.data.get()), response.size}, options_.protocol);
  }

 private:
  struct Response {
    std::unique_ptr<void, decltype(&std::free)> data{nullptr, std::free};
    size_t size = 0;
  };

  Response Process(size_t index) {
    const std::string& request = requests_[index];
    void* data = nullptr;
    int size = 0;
    const int code = library_.process(model_.get(), request.data(), static_cast<int>(request.size()), &data, &size);
    Response response{{data, std::free}, static_cast<size_t>(size)};
    if (code != 200) {
      throw std::runtime_error("processor: " + std::string(static_cast<const char*>(data), response.size));
    }
    return response;
  }
};

/// Through functions of the modern ABI, which return results.
class ResultEngine : public LibraryEngine {
 public:
  using LibraryEngine::LibraryEngine;

  void Run(size_t index) override { Call(index); }

  NamedTensors Answer(size_t index) override { return ReadResponse(library_.Bytes(Call(index)), options_.protocol); }

 private:
  virtual ResultHandle Call(size_t index) = 0;
};

/// A model, for the protocols that the drop-in contract does not speak.
class BytesEngine : public ResultEngine {
 public:
  BytesEngine(const EngineOptions& options, const std::vector<std::string>& requests)
      : ResultEngine(options, requests) {
    model_ = library_.Load(options.model, options.config);
  }

 private:
  ResultHandle Call(size_t index) override {
    processor_request request = MakeRequest(options_.protocol, requests_[index]);
    request.signature_name = options_.signature.c_str();
    return library_.Run(model_.get(), request);
  }
};

/// A host, which owns the models of its state directory.
class HostEngine : public ResultEngine {
 public:
  HostEngine(const std::string& state_dir, const std::string& name, const EngineOptions& options,
             const std::vector<std::string>& requests)
      : ResultEngine(options, requests), name_(name), host_(nullptr, library_.host_free) {
    processor_host_options host_options = {};
    host_options.struct_size = sizeof host_options;
    host_options.abi_version = PROCESSOR_ABI_VERSION;
    host_options.state_dir = state_dir.c_str();
    host_options.host_id = "bench";
    processor_host* host = nullptr;
    processor_error error = {};
    Library::Check(library_.host_create(&host_options, &host, &error), error);
    host_.reset(host);
    WaitUntilLoaded();
  }

 private:
  ResultHandle Call(size_t index) override {
    processor_host_request request = {};
    request.struct_size = sizeof request;
    request.protocol = options_.protocol.c_str();
    request.data = requests_[index].data();
    request.size = requests_[index].size();
    request.model_name = name_.c_str();
    processor_result* result = nullptr;
    processor_error error;
    const processor_status status = library_.host_process(host_.get(), &request, &result, &error);
    ResultHandle handle(result, library_.result_free);
    Library::Check(status, error);
    return handle;
  }

  void WaitUntilLoaded() const {
    const auto end = std::chrono::steady_clock::now() + kLoading;
    json status;
    do {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      processor_result* result = nullptr;
      processor_error error = {};
      Library::Check(library_.host_status(host_.get(), &result, &error), error);
      status = json::parse(library_.Bytes(ResultHandle(result, library_.result_free)));
    } while (status.at("state") == "starting" && std::chrono::steady_clock::now() < end);
    for (const auto& [name, model] : status.at("models").items()) {
      for (const auto& [number, version] : model.at("versions").items()) {
        if (version.at("state") == "ready") continue;
        throw std::runtime_error("host: " + name + "/" + number + ": " + version.dump());
      }
    }
  }

  const std::string name_;
  std::unique_ptr<processor_host, decltype(&::processor_host_free)> host_;
};

}  // namespace

std::unique_ptr<Engine> MakeProcessorEngine(const EngineOptions& options, const std::vector<std::string>& requests) {
  if (options.protocol == "eas") return std::make_unique<DropInEngine>(options, requests);
  return std::make_unique<BytesEngine>(options, requests);
}

std::unique_ptr<Engine> MakeHostEngine(const std::string& state_dir, const std::string& name,
                                       const EngineOptions& options, const std::vector<std::string>& requests) {
  return std::make_unique<HostEngine>(state_dir, name, options, requests);
}

}  // namespace processor::bench
