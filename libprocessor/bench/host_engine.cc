// SPDX-License-Identifier: Apache-2.0
#include <chrono>
#include <stdexcept>
#include <string>
#include <thread>

#include "engine.h"
#include "library.h"
#include "nlohmann/json.hpp"

namespace processor::bench {
namespace {

constexpr std::chrono::seconds kLoading{300};

class HostEngine : public Engine {
 public:
  HostEngine(const std::string& state_dir, const std::string& name, const EngineOptions& options,
             const std::vector<std::string>& requests)
      : library_(options.library), name_(name), protocol_(options.protocol), requests_(requests) {
    processor_host_options host = {};
    host.struct_size = sizeof host;
    host.abi_version = PROCESSOR_ABI_VERSION;
    host.state_dir = state_dir.c_str();
    host.host_id = "bench";
    processor_error error = {};
    if (library_.host_create(&host, &host_, &error) != PROCESSOR_OK) Fail(error);
    try {
      WaitUntilLoaded();
    } catch (...) {
      library_.host_free(host_);
      throw;
    }
  }

  ~HostEngine() override { library_.host_free(host_); }

  void Run(size_t index) override { library_.result_free(Call(index)); }

  NamedTensors Answer(size_t index) override { return ReadResponse(Text(Call(index)), protocol_); }

 private:
  [[noreturn]] static void Fail(const processor_error& error) {
    throw std::runtime_error(std::string("host: ") + error.message);
  }

  processor_result* Call(size_t index) {
    processor_host_request request = {};
    request.struct_size = sizeof request;
    request.protocol = protocol_.c_str();
    request.data = requests_[index].data();
    request.size = requests_[index].size();
    request.model_name = name_.c_str();
    processor_result* result = nullptr;
    processor_error error;
    if (library_.host_process(host_, &request, &result, &error) != PROCESSOR_OK) {
      library_.result_free(result);
      Fail(error);
    }
    return result;
  }

  // The bytes of a result, which is freed.
  std::string Text(processor_result* result) const {
    const void* data = nullptr;
    size_t size = 0;
    library_.result_bytes(result, &data, &size);
    std::string text(static_cast<const char*>(data), size);
    library_.result_free(result);
    return text;
  }

  void WaitUntilLoaded() const {
    const auto end = std::chrono::steady_clock::now() + kLoading;
    nlohmann::json status;
    do {
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
      processor_result* result = nullptr;
      processor_error error = {};
      if (library_.host_status(host_, &result, &error) != PROCESSOR_OK) Fail(error);
      status = nlohmann::json::parse(Text(result));
    } while (status.at("state") == "starting" && std::chrono::steady_clock::now() < end);
    for (const auto& [name, model] : status.at("models").items()) {
      for (const auto& [number, version] : model.at("versions").items()) {
        if (version.at("state") == "ready") continue;
        throw std::runtime_error("host: " + name + "/" + number + ": " + version.dump());
      }
    }
  }

  const Library library_;
  const std::string name_, protocol_;
  const std::vector<std::string>& requests_;
  processor_host* host_ = nullptr;
};

}  // namespace

std::unique_ptr<Engine> MakeHostEngine(const std::string& state_dir, const std::string& name,
                                       const EngineOptions& options, const std::vector<std::string>& requests) {
  return std::make_unique<HostEngine>(state_dir, name, options, requests);
}

}  // namespace processor::bench
