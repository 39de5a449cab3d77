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
#include <exception>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "library.h"
#include "nlohmann/json.hpp"
#include "process_state.h"
#include "program.h"
#include "request_file.h"
#include "timing.h"

namespace processor::bench {
namespace {

/// The model that is loaded over and over, and what it is asked.
class Subject {
 public:
  explicit Subject(const Arguments& arguments)
      : library_(arguments.Text("--library")),
        folder_(arguments.Text("--model")),
        config_(arguments.Text("--config")),
        protocol_(arguments.Text("--protocol")),
        requests_(ReadRequestFile(arguments.Text("--requests"))) {}

  ModelHandle Load() const { return library_.Load(folder_, config_); }

  void Serve(const ModelHandle& model, const std::string& request) const {
    library_.Run(model.get(), MakeRequest(protocol_, request));
  }

  const std::vector<std::string>& requests() const { return requests_; }

 private:
  const Library library_;
  const std::string folder_, config_, protocol_;
  const std::vector<std::string> requests_;
};

Report ToReport(const ProcessState& state) {
  return {{"rss_kb", state.rss_kb},
          {"anonymous_kb", state.anonymous_kb},
          {"threads", state.threads},
          {"descriptors", state.descriptors}};
}

Report MeasureResident(const Subject& subject, size_t threads, size_t passes) {
  const ProcessState before = ReadProcessState();
  ModelHandle model = subject.Load();
  const ProcessState loaded = ReadProcessState();

  std::vector<std::exception_ptr> failures(threads);
  std::vector<std::thread> clients;
  for (size_t i = 0; i < threads; ++i) {
    clients.emplace_back([&, i] {
      try {
        for (size_t pass = 0; pass < passes; ++pass) {
          for (const std::string& request : subject.requests()) subject.Serve(model, request);
        }
      } catch (...) {
        failures[i] = std::current_exception();
      }
    });
  }
  for (std::thread& client : clients) client.join();
  for (const std::exception_ptr& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
  const ProcessState used = ReadProcessState();
  model.reset();
  return {{"before", ToReport(before)},
          {"loaded", ToReport(loaded)},
          {"used", ToReport(used)},
          {"freed", ToReport(ReadProcessState())}};
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

Report MeasureCycles(const Subject& subject, size_t cycles, size_t baseline) {
  const Clock::time_point begin = Clock::now();
  Report rss_kb = Report::array();
  Extremes extremes;
  ProcessState first, last;
  for (size_t cycle = 1; cycle <= cycles; ++cycle) {
    subject.Serve(subject.Load(), subject.requests()[cycle % subject.requests().size()]);
    if (cycle < baseline) continue;
    last = ReadProcessState();
    // The kernel counts a thread for a moment after it was joined.
    for (int tries = 0; cycle > baseline && last.threads > extremes.low.threads && tries < 200; ++tries) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
      last = ReadProcessState();
    }
    if (cycle == baseline) extremes = {first = last, last};
    extremes.Add(last);
    if (cycle % baseline == 0) rss_kb.push_back(last.rss_kb);
  }
  return {{"cycles", cycles},
          {"baseline", baseline},
          {"seconds", Rounded(Seconds(Clock::now() - begin), 2)},
          {"first", ToReport(first)},
          {"last", ToReport(last)},
          {"low", ToReport(extremes.low)},
          {"high", ToReport(extremes.high)},
          {"rss_kb", std::move(rss_kb)}};
}

Report Measure(const Arguments& arguments) {
  const Subject subject(arguments);
  const std::string& mode = arguments.Text("--mode");
  if (mode == "resident") {
    return MeasureResident(subject, arguments.Count("--threads"), arguments.Count("--passes"));
  }
  if (mode != "cycles") throw std::invalid_argument("--mode: '" + mode + "', expected resident or cycles");
  const size_t cycles = arguments.Count("--cycles"), baseline = arguments.Count("--baseline");
  if (cycles < baseline) throw std::invalid_argument("--cycles: fewer than --baseline, expected as many or more");
  return MeasureCycles(subject, cycles, baseline);
}

}  // namespace

const Program kProgram = {{{"--mode", "cycles"},
                           {"--model", ""},
                           {"--requests", ""},
                           {"--protocol", "eas"},
                           {"--library", "libprocessor.so"},
                           {"--config", ""},
                           {"--threads", "1"},
                           {"--passes", "1"},
                           {"--cycles", "10000"},
                           {"--baseline", "100"}},
                          Measure};

}  // namespace processor::bench
