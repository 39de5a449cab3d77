// SPDX-License-Identifier: Apache-2.0
// What is measured: something that answers the requests of one file, from any number of threads.
#ifndef PROCESSOR_BENCH_ENGINE_H_
#define PROCESSOR_BENCH_ENGINE_H_

#include <memory>
#include <string>
#include <vector>

#include "answers.h"

namespace processor::bench {

class Engine {
 public:
  virtual ~Engine() = default;

  /// Answers request number `index` and drops the answer. Throws std::runtime_error if the engine refuses it.
  virtual void Run(size_t index) = 0;

  /// Answers request number `index`.
  virtual NamedTensors Answer(size_t index) = 0;

  /// What the engine itself counted, as JSON; "null" if it does not count.
  virtual std::string Statistics() { return "null"; }
};

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

}  // namespace processor::bench

#endif  // PROCESSOR_BENCH_ENGINE_H_
