// SPDX-License-Identifier: Apache-2.0
// Whole requests whose rows are read from a device before they run, through the C ABI alone: `early_reads MODEL ROWS SECONDS
// [THREADS]`, where MODEL is what tests/helpers/models/row_models.py makes of so many rows.
//
// Threads send requests to models that share a table in the tier `tiered`, whose cache is too small, and load these models
// again meanwhile. Every answer must be right or a documented status, and every request that was accepted must end once.
// Prints counts as JSON; exits with 1 if anything was wrong, or if no row was read early.
#include <array>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "processor/processor.h"
#include "stress_checks.h"

namespace {

using stress::Describe;
using stress::Fault;
using stress::faults;
using stress::IsExpected;

constexpr size_t kModels = 3, kDim = 24, kMostRows = 40;
std::array<std::atomic<processor_model*>, kModels> models;
std::atomic<bool> stop{false};
std::atomic<long> right{0}, refused{0}, accepted{0}, ended{0};
std::string model_path;
int64_t rows_of_table = 0;

const char* const kConfigs[kModels] = {
    R"({"session_num": 1, "worker_threads": 1, "warmup_runs": 1, "tables": {"tier": "tiered", "memory": 100000}})",
    R"({"session_num": 2, "worker_threads": 2, "warmup_runs": 1, "tables": {"tier": "tiered", "memory": 100000},
        "batching": {"mode": "zero_wait"}})",
    R"({"session_num": 1, "worker_threads": 1, "warmup_runs": 1, "tables": {"tier": "tiered", "memory": 100000},
        "batching": {"mode": "timed", "max_wait_us": 300}})",
};

struct Request {
  explicit Request(std::mt19937* random) {
    dims[0] = 1 + static_cast<int64_t>((*random)() % kMostRows);
    for (int64_t i = 0; i < dims[0]; ++i) rows[i] = static_cast<int64_t>((*random)()) % rows_of_table;
    tensor.struct_size = sizeof tensor;
    tensor.dtype = PROCESSOR_INT64;
    tensor.name = "a";
    tensor.dims = dims;
    tensor.rank = 1;
    tensor.data = rows;
    tensor.size = static_cast<size_t>(dims[0]) * sizeof(int64_t);
    request.struct_size = sizeof request;
    request.inputs = &tensor;
    request.num_inputs = 1;
    if ((*random)() % 4 == 0) request.deadline_us = processor_now_us() + static_cast<int64_t>((*random)() % 3000);
  }
  Request(const Request&) = delete;

  void Check(const processor_result* result) const {
    processor_tensor found{};
    found.struct_size = sizeof found;
    const auto count = static_cast<size_t>(dims[0]);
    if (processor_result_tensor(result, 0, &found) != PROCESSOR_OK || found.size != count * kDim * sizeof(float)) {
      return Fault("no rows");
    }
    const auto* const values = static_cast<const float*>(found.data);
    for (size_t i = 0; i < count * kDim; ++i) {
      const auto expected =
          static_cast<float>(static_cast<double>(rows[i / kDim]) + static_cast<double>(i % kDim) / 100);
      if (values[i] != expected) {
        return Fault(std::to_string(values[i]) + " in row " + std::to_string(rows[i / kDim]) + ", expected " +
                     std::to_string(expected));
      }
    }
    ++right;
  }

  alignas(64) int64_t rows[kMostRows];
  int64_t dims[1];
  processor_tensor tensor{};
  processor_request request{};
};

void Judge(const Request& request, processor_result* result, const processor_error& error) {
  if ((error.code == PROCESSOR_OK) != (result != nullptr)) Fault("an end with both or neither");
  if (result != nullptr) {
    request.Check(result);
  } else if (IsExpected(error.code)) {
    ++refused;
  } else {
    Fault(Describe("request", error));
  }
  processor_result_free(result);
}

// On any thread.
void End(void* request, uint64_t, processor_result* result, const processor_error* error) {
  const std::unique_ptr<const Request> owned(static_cast<const Request*>(request));
  Judge(*owned, result, *error);
  ++ended;
}

processor_model* Load(size_t number) {
  processor_load_options options{sizeof options, PROCESSOR_ABI_VERSION, model_path.c_str(), kConfigs[number]};
  processor_model* model = nullptr;
  processor_error error{};
  if (processor_model_load(&options, &model, &error) != PROCESSOR_OK) Fault(Describe("load", error));
  return model;
}

void Send(unsigned seed) {
  std::mt19937 random(seed);
  uint64_t last_id = 0;
  while (!stop.load()) {
    const size_t number = random() % kModels;
    processor_model* const model = models[number].load();
    const unsigned dice = random() % 1000;
    processor_error error{};
    if (dice < 2) {
      processor_model_free(models[number].exchange(Load(number)));
    } else if (dice < 100) {
      processor_model_cancel(model, last_id, &error);
    } else if (dice < 300) {
      const Request request(&random);
      processor_result* result = nullptr;
      error.code = processor_model_run(model, &request.request, &result, &error);
      Judge(request, result, error);
    } else {
      auto request = std::make_unique<Request>(&random);
      processor_target target{};
      target.struct_size = sizeof target;
      target.done = &End;
      target.user_data = request.get();
      if (processor_model_run_async(model, &request->request, &target, &last_id, &error) == PROCESSOR_OK) {
        ++accepted;
        static_cast<void>(request.release());  // End() owns it
      } else if (!IsExpected(error.code)) {
        Fault(Describe("run_async", error));
      }
      // Not so many that all wait until their deadlines.
      while (accepted.load() - ended.load() > 64 && !stop.load()) std::this_thread::yield();
    }
  }
}

// Returns how many rows the tables of a model have read early.
long EarlyRows(const processor_model* model) {
  processor_result* info = nullptr;
  if (processor_model_info(model, &info, nullptr) != PROCESSOR_OK) return 0;
  const void* data = nullptr;
  size_t size = 0;
  processor_result_bytes(info, &data, &size);
  const std::string text(static_cast<const char*>(data), size), key = "\"early_rows\":";
  const size_t at = text.find(key);
  processor_result_free(info);
  return at == std::string::npos ? 0 : std::atol(text.c_str() + at + key.size());
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 4) {
    std::fprintf(stderr, "usage: %s MODEL ROWS SECONDS [THREADS]\n", argv[0]);
    return 2;
  }
  model_path = argv[1];
  rows_of_table = std::atol(argv[2]);
  const double seconds = std::atof(argv[3]);
  const int num_threads = argc > 4 ? std::atoi(argv[4]) : 8;
  processor_set_log_sink(nullptr, nullptr, PROCESSOR_LOG_ERROR + 1);
  for (size_t i = 0; i < kModels; ++i) models[i] = Load(i);
  if (faults != 0) return 1;
  std::vector<std::thread> threads;
  for (int i = 0; i < num_threads; ++i) threads.emplace_back(Send, static_cast<unsigned>(i) + 1);
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  long early = 0;
  for (auto& model : models) early += EarlyRows(model);
  for (auto& model : models) processor_model_free(model.exchange(nullptr));
  if (accepted != ended) Fault(std::to_string(accepted) + " requests accepted, " + std::to_string(ended) + " ended");
  if (right == 0 || early == 0) Fault("no request was answered from rows that were read early");
  std::printf("{\"faults\": %d, \"right\": %ld, \"refused\": %ld, \"early_rows\": %ld}\n", faults.load(), right.load(),
              refused.load(), early);
  return faults == 0 ? 0 : 1;
}
