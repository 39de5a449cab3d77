// SPDX-License-Identifier: Apache-2.0
// libprocessor opened at run time, as a host that embeds it by path does.
#ifndef PROCESSOR_BENCH_LIBRARY_H_
#define PROCESSOR_BENCH_LIBRARY_H_

#include <dlfcn.h>

#include <stdexcept>
#include <string>

#include "processor/deeprec.h"
#include "processor/processor.h"

namespace processor::bench {

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
    if (abi_version() >> 16 != PROCESSOR_ABI_VERSION >> 16) {
      throw std::runtime_error(path + ": built for another ABI version");
    }
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
