// SPDX-License-Identifier: Apache-2.0
// libprocessor opened at run time, as a host that embeds it by path does.
#ifndef PROCESSOR_BENCH_LIBRARY_H_
#define PROCESSOR_BENCH_LIBRARY_H_

#include <dlfcn.h>

#include <memory>
#include <stdexcept>
#include <string>

#include "processor/deeprec.h"
#include "processor/processor.h"

namespace processor::bench {

using ModelHandle = std::unique_ptr<processor_model, decltype(&::processor_model_free)>;
using ResultHandle = std::unique_ptr<processor_result, decltype(&::processor_result_free)>;

/// A request of the modern ABI. It borrows its arguments.
inline processor_request MakeRequest(const std::string& protocol, const std::string& bytes) {
  processor_request request = {};
  request.struct_size = sizeof request;
  request.protocol = protocol.c_str();
  request.data = bytes.data();
  request.size = bytes.size();
  return request;
}

/// Functions of one libprocessor.so. It stays open until the process ends.
class Library {
 public:
  /// Throws std::runtime_error with the reason if the library or one of the functions cannot be had.
  explicit Library(const std::string& path) : handle_(dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE)) {
    if (handle_ == nullptr) throw std::runtime_error(dlerror());
    Find("initialize", &initialize);
    Find("process", &process);
    Find("processor_abi_version", &abi_version);
    Find("processor_host_create", &host_create);
    Find("processor_host_free", &host_free);
    Find("processor_host_process", &host_process);
    Find("processor_host_status", &host_status);
    Find("processor_model_load", &model_load);
    Find("processor_model_free", &model_free);
    Find("processor_model_run", &model_run);
    Find("processor_model_run_async", &model_run_async);
    Find("processor_model_stats", &model_stats);
    Find("processor_result_bytes", &result_bytes);
    Find("processor_result_free", &result_free);
    Find("processor_result_get_info", &result_get_info);
    Find("processor_result_num_tensors", &result_num_tensors);
    Find("processor_result_tensor", &result_tensor);
    if (abi_version() >> 16 != PROCESSOR_ABI_VERSION >> 16) {
      throw std::runtime_error(path + ": built for another ABI version");
    }
  }

  /// Loads the SavedModel of a folder; `config` is a JSON object, or "" for the defaults. Throws std::runtime_error
  /// with what the library says if it fails, here and below.
  ModelHandle Load(const std::string& folder, const std::string& config) const {
    processor_load_options options = {};
    options.struct_size = sizeof options;
    options.abi_version = PROCESSOR_ABI_VERSION;
    options.path = folder.c_str();
    options.config = config.empty() ? nullptr : config.c_str();
    processor_model* model = nullptr;
    processor_error error = {};
    Check(model_load(&options, &model, &error), error);
    return ModelHandle(model, model_free);
  }

  ResultHandle Run(const processor_model* model, const processor_request& request) const {
    processor_result* result = nullptr;
    processor_error error;
    Check(model_run(model, &request, &result, &error), error);
    return ResultHandle(result, result_free);
  }

  std::string Bytes(const ResultHandle& result) const {
    const void* data = nullptr;
    size_t size = 0;
    result_bytes(result.get(), &data, &size);
    return std::string(static_cast<const char*>(data), size);
  }

  static void Check(processor_status status, const processor_error& error) {
    if (status != PROCESSOR_OK) throw std::runtime_error(std::string("processor: ") + error.message);
  }

  decltype(&::initialize) initialize;
  decltype(&::process) process;
  decltype(&::processor_abi_version) abi_version;
  decltype(&::processor_host_create) host_create;
  decltype(&::processor_host_free) host_free;
  decltype(&::processor_host_process) host_process;
  decltype(&::processor_host_status) host_status;
  decltype(&::processor_model_load) model_load;
  decltype(&::processor_model_free) model_free;
  decltype(&::processor_model_run) model_run;
  decltype(&::processor_model_run_async) model_run_async;
  decltype(&::processor_model_stats) model_stats;
  decltype(&::processor_result_bytes) result_bytes;
  decltype(&::processor_result_free) result_free;
  decltype(&::processor_result_get_info) result_get_info;
  decltype(&::processor_result_num_tensors) result_num_tensors;
  decltype(&::processor_result_tensor) result_tensor;

 private:
  template <typename Function>
  void Find(const char* name, Function* dst) {
    *dst = reinterpret_cast<Function>(dlsym(handle_, name));
    if (*dst == nullptr) throw std::runtime_error(dlerror());
  }

  void* handle_;
};

}  // namespace processor::bench

#endif  // PROCESSOR_BENCH_LIBRARY_H_
