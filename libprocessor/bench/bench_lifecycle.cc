// SPDX-License-Identifier: Apache-2.0
// What a model holds, and whether it gives it back. Uses the modern ABI only.
//
//     bench_lifecycle --mode resident --model DIR --requests FILE [--protocol eas] [--config JSON] [--threads N]
//         Loads once, answers every request of the file `--passes` times from N threads, and reports memory before
//         loading, after loading and while the model has been used.
//
//     bench_lifecycle --mode cycles --model DIR --requests FILE [--cycles 10000] [--baseline 100]
//         Loads, answers one request and frees, over and over; reports memory, threads and file descriptors after each
//         `--baseline` cycles, and their extremes after the first of these points.
//
// JSON on standard output; docs/benchmarks/serving.md explains it.

#include <chrono>
#include <cstdio>
#include <exception>
#include <map>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

#include "arguments.h"
#include "library.h"
#include "process_state.h"
#include "request_file.h"

namespace processor::bench {
namespace {

struct Subject {
  const Library& library;
  std::string model;
  std::string config;
  std::string protocol;
  std::vector<std::string> requests;
};

[[noreturn]] void Fail(const char* what, const processor_error& error) {
  throw std::runtime_error(std::string(what) + ": " + error.message);
}

processor_model* Load(const Subject& subject) {
  processor_load_options options = {};
  options.struct_size = sizeof options;
  options.abi_version = PROCESSOR_ABI_VERSION;
  options.path = subject.model.c_str();
  options.config = subject.config.empty() ? nullptr : subject.config.c_str();
  processor_model* model = nullptr;
  processor_error error;
  if (subject.library.model_load(&options, &model, &error) != PROCESSOR_OK) Fail("load", error);
  return model;
}

void Serve(const Subject& subject, const processor_model* model, const std::string& bytes) {
  processor_request request = {};
  request.struct_size = sizeof request;
  request.protocol = subject.protocol.c_str();
  request.data = bytes.data();
  request.size = bytes.size();
  processor_result* result = nullptr;
  processor_error error;
  if (subject.library.model_run(model, &request, &result, &error) != PROCESSOR_OK) Fail("run", error);
  subject.library.result_free(result);
}

void PrintState(const char* name, const ProcessState& state, const char* end) {
  std::printf("  \"%s\": {\"rss_kb\": %ld, \"anonymous_kb\": %ld, \"threads\": %ld, \"descriptors\": %ld}%s\n", name,
              state.rss_kb, state.anonymous_kb, state.threads, state.descriptors, end);
}

void MeasureResident(const Subject& subject, size_t threads, size_t passes) {
  const ProcessState before = ReadProcessState();
  processor_model* model = Load(subject);
  const ProcessState loaded = ReadProcessState();

  std::vector<std::exception_ptr> failures(threads);
  std::vector<std::thread> clients;
  for (size_t i = 0; i < threads; ++i) {
    clients.emplace_back([&, i] {
      try {
        for (size_t pass = 0; pass < passes; ++pass) {
          for (const std::string& request : subject.requests) Serve(subject, model, request);
        }
      } catch (...) {
        failures[i] = std::current_exception();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  const ProcessState used = ReadProcessState();
  subject.library.model_free(model);
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  const ProcessState freed = ReadProcessState();
  std::printf("{\n");
  PrintState("before", before, ",");
  PrintState("loaded", loaded, ",");
  PrintState("used", used, ",");
  PrintState("freed", freed, "");
  std::printf("}\n");
}

struct Extremes {
  ProcessState low, high;

  void Add(const ProcessState& state) {
    for (long ProcessState::* field :
         {&ProcessState::rss_kb, &ProcessState::anonymous_kb, &ProcessState::threads, &ProcessState::descriptors}) {
      if (state.*field < low.*field) low.*field = state.*field;
      if (state.*field > high.*field) high.*field = state.*field;
    }
  }
};

void MeasureCycles(const Subject& subject, size_t cycles, size_t baseline) {
  const auto begin = std::chrono::steady_clock::now();
  std::vector<ProcessState> points;
  Extremes extremes;
  ProcessState first, last;
  for (size_t cycle = 1; cycle <= cycles; ++cycle) {
    processor_model* model = Load(subject);
    Serve(subject, model, subject.requests[cycle % subject.requests.size()]);
    subject.library.model_free(model);
    if (cycle < baseline) continue;
    last = ReadProcessState();
    // The kernel counts a thread for a moment after it was joined.
    for (int tries = 0; cycle > baseline && last.threads > extremes.low.threads && tries < 200; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      last = ReadProcessState();
    }
    if (cycle == baseline) extremes = {first = last, last};
    extremes.Add(last);
    if (cycle % baseline == 0) points.push_back(last);
  }
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();

  std::printf("{\n  \"cycles\": %zu, \"baseline\": %zu, \"seconds\": %.2f,\n", cycles, baseline, seconds);
  PrintState("first", first, ",");
  PrintState("last", last, ",");
  PrintState("low", extremes.low, ",");
  PrintState("high", extremes.high, ",");
  std::printf("  \"rss_kb\": [");
  for (size_t i = 0; i < points.size(); ++i) std::printf("%s%ld", i == 0 ? "" : ", ", points[i].rss_kb);
  std::printf("]\n}\n");
}

void Run(const Arguments& arguments) {
  const Library library(arguments.Text("--library"));
  const Subject subject{library, arguments.Text("--model"), arguments.Text("--config"), arguments.Text("--protocol"),
                        ReadRequestFile(arguments.Text("--requests"))};
  const auto count = [&](const char* name) {
    const auto value = static_cast<size_t>(arguments.Number(name));
    if (value == 0) throw std::invalid_argument(std::string(name) + ": 0, expected at least 1");
    return value;
  };
  const std::string& mode = arguments.Text("--mode");
  if (mode == "resident") {
    MeasureResident(subject, count("--threads"), count("--passes"));
  } else if (mode == "cycles") {
    if (count("--cycles") < count("--baseline")) {
      throw std::invalid_argument("--cycles: fewer than --baseline, expected as many or more");
    }
    MeasureCycles(subject, count("--cycles"), count("--baseline"));
  } else {
    throw std::invalid_argument("--mode: '" + mode + "', expected resident or cycles");
  }
}

}  // namespace
}  // namespace processor::bench

int main(int argc, char** argv) {
  const std::map<std::string, std::string> defaults = {
      {"--mode", "cycles"},
      {"--model", ""},
      {"--requests", ""},
      {"--protocol", "eas"},
      {"--library", "libprocessor.so"},
      {"--config", ""},
      {"--threads", "1"},
      {"--passes", "1"},
      {"--cycles", "10000"},
      {"--baseline", "100"},
  };
  try {
    processor::bench::Run(processor::bench::Arguments(argc, argv, defaults));
    return 0;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "bench_lifecycle: %s\n", error.what());
    return 1;
  }
}
