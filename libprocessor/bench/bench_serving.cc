// SPDX-License-Identifier: Apache-2.0
// Requests per second, latency and CPU time of one model: stock TensorFlow, libprocessor, or several engines in turns.
//
//     bench_serving --model DIR --requests FILE [--engine both|stock|processor] [--protocol eas|tfserving]
//                   [--library libprocessor.so] [--config JSON] [--signature serving_default]
//                   [--threads N] [--seconds S] [--warmup S] [--rounds N] [--weights BYTES] [--contestants JSON]
//
// `--contestants` names any number of engines instead of `--engine`, in the order of their turns:
//
//     [{"name": "stock", "engine": "stock", "model": DIR},
//      {"name": "fused", "engine": "processor", "model": DIR, "config": {...}, "tolerance": 1e-5},
//      {"name": "host", "engine": "host", "state_dir": DIR, "model_name": "ranking"},
//      {"name": "peer", "engine": "peer", "command": ["python", "peer.py"], "tolerance": 1e-4},
//      {"name": "bare", "engine": "onednn", "widths": [429, 1024, 1], "rows": 1}]
//
// The answers of all but the first, which is the reference, are compared with its answers; a difference above the
// tolerance ends the run with exit status 2. An engine without answers ("onednn") is not compared. An entry may have
// "requests" of its own: a file with as many, which ask for the same in another form. "client_cpu" binds the clients of
// an entry to that CPU, like callers that may not use the CPUs of a session.
// `--weights` adds how long one core takes to read that many bytes. JSON on standard output, see docs/benchmarks/serving.md.

#include <algorithm>
#include <chrono>
#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "engine.h"
#include "nlohmann/json.hpp"
#include "program.h"
#include "read_floor.h"
#include "request_file.h"
#include "timing.h"

namespace processor::bench {
namespace {

constexpr double kTolerance = 1e-5;

struct Contestant {
  std::string name;
  std::unique_ptr<const std::vector<std::string>> own_requests;  // outlives the engine
  double tolerance = kTolerance;
  bool answers = true;
  double largest_difference = 0;
  std::unique_ptr<Engine> engine;
  int client_cpu = -1;
  double load_seconds = 0;
  std::string statistics_before;
  Report rounds = Report::array();
};

void CheckAnswers(Contestant* contestant, Engine* reference, size_t num_requests) {
  if (!contestant->answers) return;
  for (size_t i = 0; i < num_requests; ++i) {
    const NamedTensors expected = reference->Answer(i), found = contestant->engine->Answer(i);
    try {
      contestant->largest_difference =
          std::max(contestant->largest_difference, CompareAnswers(found, expected, contestant->tolerance));
    } catch (const std::runtime_error& error) {
      throw AnswersDiffer(contestant->name + ": request " + std::to_string(i) + ": " + error.what());
    }
  }
}

Contestant LoadEntry(const nlohmann::json& entry, EngineOptions options, std::string file,
                     const std::vector<std::string>& all_requests, size_t threads) {
  const std::string engine = entry.at("engine");
  std::unique_ptr<const std::vector<std::string>> own_requests;
  if (entry.contains("requests")) {
    file = entry.at("requests");
    own_requests = std::make_unique<const std::vector<std::string>>(ReadRequestFile(file));
    if (own_requests->size() != all_requests.size()) {
      throw std::invalid_argument(file + ": " + std::to_string(own_requests->size()) + " requests, expected " +
                                  std::to_string(all_requests.size()));
    }
  }
  const std::vector<std::string>& requests = own_requests == nullptr ? all_requests : *own_requests;
  if (entry.contains("model")) options.model = entry.at("model");
  if (entry.contains("config")) options.config = entry.at("config").dump();
  const auto make = [&]() -> std::unique_ptr<Engine> {
    if (engine == "stock") return MakeStockEngine(options, requests);
    if (engine == "processor") return MakeProcessorEngine(options, requests);
    if (engine == "host") return MakeHostEngine(entry.at("state_dir"), entry.at("model_name"), options, requests);
    if (engine == "peer") return MakePeerEngine(entry.at("command"), file, options, threads);
    if (engine == "onednn") return MakeOneDnnEngine(entry.at("widths"), entry.at("rows"));
    throw std::invalid_argument("--contestants: engine '" + engine +
                                "', expected stock, processor, host, peer or onednn");
  };
  Contestant contestant;
  contestant.name = entry.value("name", engine);
  const Clock::time_point before = Clock::now();
  contestant.engine = make();
  contestant.load_seconds = Seconds(Clock::now() - before);
  contestant.own_requests = std::move(own_requests);
  contestant.client_cpu = entry.value("client_cpu", -1);
  contestant.tolerance = entry.value("tolerance", kTolerance);
  contestant.answers = engine != "onednn";
  return contestant;
}

Report ToReport(const Round& round) {
  const double requests = static_cast<double>(round.requests);
  return {{"seconds", Rounded(round.seconds, 4)},
          {"requests", round.requests},
          {"requests_per_s", Rounded(requests / round.seconds, 1)},
          {"mean_us", Rounded(round.mean_us, 1)},
          {"p50_us", Rounded(round.p50_us, 1)},
          {"p99_us", Rounded(round.p99_us, 1)},
          {"max_us", Rounded(round.max_us, 1)},
          {"cpu_s_per_1000", Rounded(1e3 * round.cpu_seconds / requests, 5)}};
}

Report ToReport(const Contestant& contestant) {
  return {{"engine", contestant.name},
          {"load_seconds", Rounded(contestant.load_seconds, 3)},
          {"max_abs_difference", contestant.largest_difference},
          {"rounds", contestant.rounds},
          {"statistics_before", Report::parse(contestant.statistics_before)},
          {"statistics_after", Report::parse(contestant.engine->Statistics())}};
}

Report Compare(const Arguments& arguments) {
  const std::string which = arguments.Text("--engine");
  if (which != "both" && which != "stock" && which != "processor") {
    throw std::invalid_argument("--engine: '" + which + "', expected both, stock or processor");
  }
  const EngineOptions options{arguments.Text("--model"), arguments.Text("--signature"), arguments.Text("--protocol"),
                              arguments.Text("--library"), arguments.Text("--config")};
  if (options.protocol != "eas" && options.protocol != "tfserving") {
    throw std::invalid_argument("--protocol: '" + options.protocol + "', expected eas or tfserving");
  }
  const std::vector<std::string> requests = ReadRequestFile(arguments.Text("--requests"));
  const size_t threads = std::max<size_t>(1, static_cast<size_t>(arguments.Number("--threads")));
  const size_t rounds = static_cast<size_t>(arguments.Number("--rounds"));

  nlohmann::json entries = nlohmann::json::array();
  if (const std::string& list = arguments.Text("--contestants"); !list.empty()) {
    entries = nlohmann::json::parse(list);
    if (entries.empty()) throw std::invalid_argument("--contestants: none, expected one at least");
  } else {
    if (which != "processor") entries.push_back({{"engine", "stock"}});
    if (which != "stock") entries.push_back({{"engine", "processor"}});
  }
  std::vector<Contestant> contestants;
  for (const nlohmann::json& entry : entries) {
    contestants.push_back(LoadEntry(entry, options, arguments.Text("--requests"), requests, threads));
  }
  double largest_difference = 0;
  for (size_t i = 1; i < contestants.size(); ++i) {
    CheckAnswers(&contestants[i], contestants[0].engine.get(), requests.size());
    largest_difference = std::max(largest_difference, contestants[i].largest_difference);
  }
  for (Contestant& contestant : contestants) {
    Measure(contestant.engine.get(), requests.size(), threads, arguments.Number("--warmup"), contestant.client_cpu);
    contestant.statistics_before = contestant.engine->Statistics();
  }
  TakeTurns(rounds, &contestants, [&](Contestant* contestant) {
    // Thread pools spin for a moment before they sleep; nobody pays for the other's.
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
    contestant->rounds.push_back(ToReport(Measure(contestant->engine.get(), requests.size(), threads,
                                                  arguments.Number("--seconds"), contestant->client_cpu)));
  });

  Report answers;
  if (contestants.size() > 1) {
    answers = {{"compared", requests.size()}, {"max_abs_difference", largest_difference}};
  }
  const auto weights = static_cast<size_t>(arguments.Number("--weights"));
  Report engines = Report::array();
  for (const Contestant& contestant : contestants) engines.push_back(ToReport(contestant));
  return {{"threads", threads},
          {"distinct_requests", requests.size()},
          {"answers", std::move(answers)},
          {"weights", {{"bytes", weights}, {"read_us", weights == 0 ? 0 : Rounded(ReadFloor(weights), 1)}}},
          {"engines", std::move(engines)}};
}

}  // namespace

const Program kProgram = {{{"--engine", "both"},
                           {"--model", ""},
                           {"--requests", ""},
                           {"--protocol", "eas"},
                           {"--library", "libprocessor.so"},
                           {"--config", ""},
                           {"--signature", "serving_default"},
                           {"--weights", "0"},
                           {"--contestants", ""},
                           {"--threads", std::to_string(std::thread::hardware_concurrency())},
                           {"--seconds", "3"},
                           {"--warmup", "1"},
                           {"--rounds", "5"}},
                          Compare};

}  // namespace processor::bench
