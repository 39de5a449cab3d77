// SPDX-License-Identifier: Apache-2.0
// Everything at once, through the C ABI alone: `stress MODEL SECONDS [THREADS]`, where MODEL is what
// tests/helpers/models/model_builders.py exports as "linear".
//
// Each thread loads, frees, re-pins, drains, asks and serves the same few models at random. Every answer must be right
// or a documented status, and every asynchronous request that was accepted must end exactly once. Prints counts as JSON;
// exits with 1 if anything was wrong.
#include <poll.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "processor/deeprec.h"
#include "processor/processor.h"
#include "stress_checks.h"

namespace {

using stress::Describe;
using stress::Fault;
using stress::faults;
using stress::IsExpected;

constexpr size_t kCells = 4;
std::array<std::atomic<processor_model*>, kCells> cells;
std::atomic<bool> stop{false};
std::string model_path;

std::mutex count_mutex;
std::map<std::string, long> counts;

const char* const kConfigs[] = {
    R"({"session_num": 2, "intra_op_parallelism_threads": 1})",
    R"({"session_num": 2, "intra_op_parallelism_threads": 2, "execution": "pinned", "select_session_policy": "RR"})",
    R"({"session_num": 1, "intra_op_parallelism_threads": 1, "execution": "pinned", "max_queue_size": 2})",
    R"({"session_num": 2, "intra_op_parallelism_threads": 1, "execution": "pinned", "worker_threads": 2,
        "select_session_policy": "LEAST_LOADED", "use_per_session_threads": true, "executor": "default",
        "inter_op_parallelism_threads": 2})",
    R"({"session_num": 3, "intra_op_parallelism_threads": 1, "executor": "default", "warmup_runs": 1})",
};

// One row whose score is a multiple of 1/2 that float holds exactly.
struct Row {
  explicit Row(uint64_t seed) {
    for (size_t i = 0; i < 3; ++i) x[i] = static_cast<float>((seed >> (8 * i)) % 200);
    tensor.struct_size = sizeof tensor;
    tensor.dtype = PROCESSOR_FLOAT;
    tensor.name = "x";
    tensor.dims = dims;
    tensor.rank = 2;
    tensor.data = x;
    tensor.size = sizeof x;
    request.struct_size = sizeof request;
    request.inputs = &tensor;
    request.num_inputs = 1;
  }
  Row(const Row&) = delete;
  float score() const { return x[0] + 2 * x[1] + 3 * x[2] + 0.5f; }

  alignas(64) float x[3];
  const int64_t dims[2] = {1, 3};
  processor_tensor tensor{};
  processor_request request{};
};

void CheckResult(const processor_result* result, float expected) {
  processor_tensor y{};
  y.struct_size = sizeof y;
  if (processor_result_tensor(result, 0, &y) != PROCESSOR_OK || y.size != sizeof(float)) return Fault("no score");
  float score;
  std::memcpy(&score, y.data, sizeof score);
  if (score != expected) Fault("score " + std::to_string(score) + ", expected " + std::to_string(expected));
}

class Worker {
 public:
  explicit Worker(unsigned seed) : random_(seed) {
    if (processor_queue_create(&queue_, nullptr) != PROCESSOR_OK) Fault("no queue");
  }

  void Work() {
    while (!stop.load()) {
      const size_t cell = random_() % kCells;
      // Now and then a handle that was freed, which must answer as such.
      processor_model* model = random_() % 32 == 0 && freed_ != nullptr ? freed_ : cells[cell].load();
      const unsigned dice = random_() % 1000;
      if (dice < 4) {
        Replace(cell);
      } else if (dice < 5) {
        Drain(model);
        Replace(cell);
      } else if (dice < 30) {
        SetCpuset(model);
      } else if (dice < 60) {
        Ask(model);
      } else if (dice < 500) {
        Run(model);
      } else if (dice < 560) {
        RunBatch(model);
      } else if (dice < 900) {
        RunAsync(model);
      } else {
        Cancel(model);
      }
      Take(/*timeout_ms=*/0);
    }
  }

  // Called when all models have been freed, so that every request has ended.
  void Finish() {
    Take(0);
    if (accepted_ != ended_) {
      Fault(std::to_string(accepted_) + " requests accepted, " + std::to_string(ended_.load()) + " ended");
    }
    processor_queue_free(queue_);
    std::lock_guard<std::mutex> lock(count_mutex);
    for (const auto& [name, n] : counts_) counts[name] += n;
    counts["async_accepted"] += accepted_;
  }

 private:
  void Count(const char* what, processor_status status) {
    ++counts_[std::string(what) + "." + processor_status_name(status)];
  }

  bool Judge(const char* what, processor_status status, const processor_error& error) {
    Count(what, status);
    if (!IsExpected(status)) Fault(Describe(what, error));
    return status == PROCESSOR_OK;
  }

  void Replace(size_t cell) {
    processor_load_options options{sizeof options, PROCESSOR_ABI_VERSION, model_path.c_str(),
                                   kConfigs[random_() % (sizeof kConfigs / sizeof *kConfigs)]};
    processor_model* model = nullptr;
    processor_error error{};
    const processor_status status = processor_model_load(&options, &model, &error);
    Count("load", status);
    if (status != PROCESSOR_OK) return Fault(Describe("load", error));
    freed_ = cells[cell].exchange(model);
    processor_model_free(freed_);
  }

  void Drain(processor_model* model) {
    processor_error error{};
    Judge("drain", processor_model_drain(model, processor_now_us() + 20000, &error), error);
  }

  void SetCpuset(processor_model* model) {
    const char* const sets[] = {"", "0;0", "0", "0;0;0", "0-4096", "nonsense", "0;;0"};
    processor_error error{};
    const processor_status status = processor_model_set_cpuset(model, sets[random_() % 7], &error);
    Count("set_cpuset", status);
    if (!IsExpected(status) && status != PROCESSOR_INVALID_ARGUMENT) Fault(Describe("set_cpuset", error));
  }

  void Ask(processor_model* model) {
    processor_result* result = nullptr;
    processor_error error{};
    const auto ask = random_() % 3 == 0   ? processor_model_info
                     : random_() % 2 == 0 ? processor_model_stats
                                          : processor_model_signatures;
    if (Judge("ask", ask(model, &result, &error), error)) processor_result_free(result);
    void* text = nullptr;
    int size = 0;
    const int code = process(model, nullptr, 0, &text, &size);
    if (code != 200 && code != 500) Fault("process answered " + std::to_string(code));
    if (text == nullptr) Fault("process answered nothing");
    std::free(text);
  }

  void Run(processor_model* model) {
    Row row(random_());
    row.request.priority = static_cast<int32_t>(random_() % 5);
    if (random_() % 4 == 0) row.request.deadline_us = processor_now_us() + static_cast<int64_t>(random_() % 2000);
    if (random_() % 64 == 0) row.request.deadline_us = INT64_MAX;
    processor_result* result = nullptr;
    processor_error error{};
    if (!Judge("run", processor_model_run(model, &row.request, &result, &error), error)) return;
    CheckResult(result, row.score());
    processor_result_free(result);
  }

  void RunBatch(processor_model* model) {
    const Row rows[3] = {Row(random_()), Row(random_()), Row(random_())};
    const processor_request requests[3] = {rows[0].request, rows[1].request, rows[2].request};
    processor_result* results[3] = {};
    processor_error errors[3] = {};
    const processor_status status = processor_model_run_batch(model, requests, 3, results, errors);
    Count("run_batch", status);
    if (!IsExpected(status)) Fault(Describe("run_batch", errors[0]));
    for (size_t i = 0; i < 3; ++i) {
      if (results[i] != nullptr) CheckResult(results[i], rows[i].score());
      processor_result_free(results[i]);
    }
  }

  void RunAsync(processor_model* model) {
    Row row(random_());
    if (random_() % 3 == 0) row.request.deadline_us = processor_now_us() + static_cast<int64_t>(random_() % 3000);
    if (random_() % 64 == 0) row.request.deadline_us = INT64_MAX;
    processor_target target{};
    target.struct_size = sizeof target;
    target.tag = static_cast<uint64_t>(2 * row.score());
    if (random_() % 2 == 0) {
      target.queue = queue_;
    } else {
      target.done = &Worker::Done;
      target.user_data = this;
    }
    uint64_t id = 0;
    processor_error error{};
    if (!Judge("run_async", processor_model_run_async(model, &row.request, &target, &id, &error), error)) return;
    ++accepted_;
    last_id_ = id;
    // The library has copied what it needs.
    std::memset(row.x, 0x7f, sizeof row.x);
  }

  void Cancel(processor_model* model) {
    processor_error error{};
    const processor_status status = processor_model_cancel(model, last_id_, &error);
    Count("cancel", status);
    if (!IsExpected(status) && status != PROCESSOR_NOT_FOUND) Fault(Describe("cancel", error));
  }

  void Take(int timeout_ms) {
    pollfd fd{processor_queue_fd(queue_), POLLIN, 0};
    if (poll(&fd, 1, timeout_ms) < 1) return;
    processor_completion completions[8];
    size_t count;
    while ((count = processor_queue_next(queue_, completions, 8)) > 0) {
      for (size_t i = 0; i < count; ++i) End(completions[i].tag, completions[i].result, completions[i].error);
    }
  }

  static void Done(void* self, uint64_t tag, processor_result* result, const processor_error* error) {
    static_cast<Worker*>(self)->End(tag, result, *error);
  }

  // On any thread.
  void End(uint64_t tag, processor_result* result, const processor_error& error) {
    if ((error.code == PROCESSOR_OK) != (result != nullptr)) Fault("a completion with both or neither");
    if (!IsExpected(error.code)) Fault(Describe("completion", error));
    if (result != nullptr) CheckResult(result, static_cast<float>(tag) / 2);
    processor_result_free(result);
    ++ended_;
  }

  std::mt19937 random_;
  processor_queue* queue_ = nullptr;
  processor_model* freed_ = nullptr;
  long accepted_ = 0;
  std::atomic<long> ended_{0};
  uint64_t last_id_ = 0;
  std::map<std::string, long> counts_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s MODEL SECONDS [THREADS]\n", argv[0]);
    return 2;
  }
  model_path = argv[1];
  const double seconds = std::atof(argv[2]);
  const unsigned num_threads = argc > 3 ? static_cast<unsigned>(std::atoi(argv[3])) : 64;
  // Only faults of the models matter here; refused requests are what the test is made of.
  processor_set_log_sink(nullptr, nullptr, PROCESSOR_LOG_ERROR + 1);
  for (size_t i = 0; i < kCells; ++i) {
    processor_load_options options{sizeof options, PROCESSOR_ABI_VERSION, model_path.c_str(), kConfigs[i]};
    processor_model* model = nullptr;
    processor_error error{};
    if (processor_model_load(&options, &model, &error) != PROCESSOR_OK) {
      std::fprintf(stderr, "stress: load: %s\n", error.message);
      return 1;
    }
    cells[i] = model;
  }
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < num_threads; ++i) workers.push_back(std::make_unique<Worker>(i + 1));
  for (auto& worker : workers) threads.emplace_back([raw = worker.get()] { raw->Work(); });
  std::this_thread::sleep_for(std::chrono::duration<double>(seconds));
  stop = true;
  for (std::thread& thread : threads) thread.join();
  for (auto& cell : cells) processor_model_free(cell.exchange(nullptr));
  for (auto& worker : workers) worker->Finish();

  std::printf("{\"faults\": %d", faults.load());
  for (const auto& [name, n] : counts) std::printf(", \"%s\": %ld", name.c_str(), n);
  std::printf("}\n");
  return faults.load() == 0 ? 0 : 1;
}
