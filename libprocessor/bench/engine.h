// SPDX-License-Identifier: Apache-2.0
// What is measured: something that answers the requests of one file, from any number of threads.
#ifndef PROCESSOR_BENCH_ENGINE_H_
#define PROCESSOR_BENCH_ENGINE_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "answers.h"

namespace processor::bench {

/// One round of a load test.
struct Round {
  double seconds = 0;   // from the first request to the last answer
  size_t requests = 0;  // answered
  double mean_us = 0;   // latency of a request as its client saw it
  double p50_us = 0;
  double p99_us = 0;
  double max_us = 0;
  double cpu_seconds = 0;  // user and system time of the whole process
};

class Engine {
 public:
  virtual ~Engine() = default;

  /// A round by clients of the engine's own, for one in another process; none: by those of Measure().
  virtual std::optional<Round> OwnClients(size_t /*threads*/, double /*seconds*/) { return std::nullopt; }

  /// Runs request number `index` and drops the response. Throws std::runtime_error if the engine refuses it.
  virtual void Run(size_t index) = 0;

  /// Returns the response to request number `index`.
  virtual NamedTensors Answer(size_t index) = 0;

  /// What the engine itself counted, as JSON; "null" if it does not count.
  virtual std::string Statistics() { return "null"; }
};

/// One round of a load test: some client threads, each sending its next request as soon as the last is answered. They
/// send requests 0 .. num_requests - 1 over and over for `seconds`, on `client_cpu` or, if it is -1, on any CPU. Throws
/// std::runtime_error if one is refused.
Round Measure(Engine* engine, size_t num_requests, size_t threads, double seconds, int client_cpu);

/// What an engine is made of.
struct EngineOptions {
  std::string model;      // folder of the SavedModel
  std::string signature;  // name in it
  std::string protocol;   // of the requests
  std::string library;    // libprocessor.so
  std::string config;     // JSON object for the processor, "" for its defaults
};

/// TensorFlow as a plain server uses it: one session with default options and Session::Run. Requests are turned into
/// tensors beforehand, so that reading and writing messages costs it nothing: the harder opponent.
std::unique_ptr<Engine> MakeStockEngine(const EngineOptions& options, const std::vector<std::string>& requests);

/// libprocessor as a host uses it, bytes in and bytes out: "eas" through initialize() and process() of the drop-in
/// contract, any other protocol through processor_model_run(). `requests` must outlive the engine.
std::unique_ptr<Engine> MakeProcessorEngine(const EngineOptions& options, const std::vector<std::string>& requests);

/// A host on the folder `state_dir`, asked for the model `name` (processor_host_process). Its desired.json says what is
/// loaded; returns once all of it is.
std::unique_ptr<Engine> MakeHostEngine(const std::string& state_dir, const std::string& name,
                                       const EngineOptions& options, const std::vector<std::string>& requests);

/// A program of another system that sends itself the requests of a file. It is started as `command --requests FILE
/// --protocol P --signature S --threads N` and reads lines: "measure SECONDS" answers a JSON object with the figures of a
/// Round, "answer I" one of named arrays, {"prob": {"shape": [1, 1], "values": [0.5]}}, float32 all.
std::unique_ptr<Engine> MakePeerEngine(const std::vector<std::string>& command, const std::string& requests,
                                       const EngineOptions& options, size_t threads);

/// The dense layers `widths[0]`-...-`widths.back()` of random weights with ReLU between them, by oneDNN alone: what is
/// left of a request if everything but its matrix products is free. It answers nothing.
std::unique_ptr<Engine> MakeOneDnnEngine(const std::vector<int64_t>& widths, int64_t rows);

}  // namespace processor::bench

#endif  // PROCESSOR_BENCH_ENGINE_H_
