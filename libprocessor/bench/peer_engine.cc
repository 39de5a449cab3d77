// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <stdexcept>
#include <string>
#include <vector>

#include "engine.h"
#include "nlohmann/json.hpp"

namespace processor::bench {
namespace {

using Json = nlohmann::json;

class PeerEngine : public Engine {
 public:
  PeerEngine(std::vector<std::string> command, size_t threads) : name_(command.front()), threads_(threads) {
    int to_child[2], from_child[2];
    // Closed in the other peers: one that held another's input would keep it from ending.
    if (pipe2(to_child, O_CLOEXEC) != 0 || pipe2(from_child, O_CLOEXEC) != 0) throw std::runtime_error("peer: no pipe");
    std::vector<char*> argv;
    for (std::string& word : command) argv.push_back(word.data());
    argv.push_back(nullptr);
    // A peer that ends early is an error message and not the end of this process.
    signal(SIGPIPE, SIG_IGN);
    child_ = fork();
    if (child_ < 0) throw std::runtime_error("peer: no process");
    if (child_ == 0) {
      dup2(to_child[0], STDIN_FILENO);
      dup2(from_child[1], STDOUT_FILENO);
      execvp(argv[0], argv.data());
      _exit(127);
    }
    close(to_child[0]);
    close(from_child[1]);
    in_ = fdopen(to_child[1], "w");
    out_ = fdopen(from_child[0], "r");
    Ask("ready");  // it has loaded
  }

  ~PeerEngine() override {
    std::fclose(in_);
    std::fclose(out_);
    waitpid(child_, nullptr, 0);
  }

  void Run(size_t /*index*/) override { throw std::runtime_error("peer: sends its own requests"); }

  std::optional<Round> OwnClients(size_t threads, double seconds) override {
    if (threads != threads_) throw std::runtime_error("peer: another number of threads than it was started with");
    const Json figures = Ask("measure " + std::to_string(seconds));
    Round round;
    round.seconds = figures.at("seconds");
    round.requests = figures.at("requests");
    round.mean_us = figures.at("mean_us");
    round.p50_us = figures.at("p50_us");
    round.p99_us = figures.at("p99_us");
    round.max_us = figures.at("max_us");
    round.cpu_seconds = figures.at("cpu_seconds");
    return round;
  }

  NamedTensors Answer(size_t index) override {
    NamedTensors answer;
    const Json outputs = Ask("answer " + std::to_string(index));
    for (const auto& [name, output] : outputs.items()) {
      tensorflow::TensorShape shape;
      for (const Json& size : output.at("shape")) shape.AddDim(size.get<int64_t>());
      tensorflow::Tensor tensor(tensorflow::DT_FLOAT, shape);
      const std::vector<float> values = output.at("values");
      if (static_cast<int64_t>(values.size()) != tensor.NumElements()) {
        throw std::runtime_error(name_ + ": output '" + name + "' has not as many values as its shape says");
      }
      std::copy(values.begin(), values.end(), tensor.flat<float>().data());
      answer.emplace(name, tensor);
    }
    return answer;
  }

 private:
  Json Ask(const std::string& line) {
    std::fprintf(in_, "%s\n", line.c_str());
    std::fflush(in_);
    std::string text;
    for (int c; (c = std::fgetc(out_)) != EOF && c != '\n';) text += static_cast<char>(c);
    const Json answer = Json::parse(text, nullptr, false);
    if (!answer.is_object()) throw std::runtime_error(name_ + ": '" + line + "' was answered with '" + text + "'");
    return answer;
  }

  const std::string name_;
  const size_t threads_;
  pid_t child_ = -1;
  std::FILE* in_ = nullptr;
  std::FILE* out_ = nullptr;
};

}  // namespace

std::unique_ptr<Engine> MakePeerEngine(const std::vector<std::string>& command, const std::string& requests,
                                       const EngineOptions& options, size_t threads) {
  std::vector<std::string> whole = command;
  for (const std::string& word :
       {std::string("--requests"), requests, std::string("--protocol"), options.protocol, std::string("--signature"),
        options.signature, std::string("--threads"), std::to_string(threads)}) {
    whole.push_back(word);
  }
  return std::make_unique<PeerEngine>(whole, threads);
}

}  // namespace processor::bench
