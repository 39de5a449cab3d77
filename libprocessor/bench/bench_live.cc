// SPDX-License-Identifier: Apache-2.0
// Clients of a live model whose answers show their epoch, and check every answer.
//
//     bench_live --model DIR --config JSON [--threads 2] [--rate 0] [--batch 4] [--features 2] [--keys 1000] [--hot 1000]
//                [--switches 1]
//
// The model (load_tests/live/model.py) has the input `a` [batch, features] int64 and the outputs `rows`, all of whose
// elements are the epoch, and `y`, all of whose elements are three times the epoch. The keys of the first feature are
// below `--hot`, those of the others below `--keys`. With a rate of 0, each client sends its next request at once; else
// all clients together send so many requests a second, when they are due.
//
// Prints lines of JSON: {"loaded": true}; {"epoch": N, "at_ns": T} when an answer of a newer epoch is there, on
// CLOCK_MONOTONIC; after each line of standard input, {"requests": N, "p50_us": ..., "p99_us": ...} since the last one.
// When standard input ends, it prints the report and ends:
//
// answers, wrong, failed, backwards (answers of an epoch before that of the client's last answer), batched (answers
// that were computed in one batch with other requests), sessions (answers by session), first_wrong, and switches: for
// each client and each change of its epoch [from, to, begin, end, next begin, next end] of the two requests around it,
// in ns. With --switches 0, which takes no memory for them, there are none.

#include <time.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdint>
#include <cstdio>
#include <iostream>
#include <map>
#include <mutex>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "library.h"
#include "nlohmann/json.hpp"
#include "program.h"
#include "timing.h"

namespace processor::bench {
namespace {

constexpr size_t kRequests = 256;  // distinct ones of each client

int64_t Now() { return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch()).count(); }

void SleepUntil(int64_t due) {
  const timespec until{due / 1000000000, due % 1000000000};
  clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
}

/// The model and the settings, which all clients use.
struct Stage {
  explicit Stage(const Arguments& arguments)
      : library(arguments.Text("--library")),
        model(library.Load(arguments.Text("--model"), arguments.Text("--config"))),
        batch(static_cast<int64_t>(arguments.Count("--batch"))),
        features(static_cast<int64_t>(arguments.Count("--features"))),
        keys(static_cast<int64_t>(arguments.Count("--keys"))),
        hot(static_cast<int64_t>(arguments.Count("--hot"))),
        threads(arguments.Count("--threads")),
        reports_switches(arguments.Number("--switches") != 0),
        rate(arguments.Number("--rate")) {}

  void Say(const Report& line) {
    const std::lock_guard<std::mutex> lock(mutex);
    std::printf("%s\n", line.dump().c_str());
    std::fflush(stdout);
  }

  void Saw(int64_t epoch, int64_t at) {
    int64_t before = newest.load();
    while (epoch > before) {
      if (newest.compare_exchange_weak(before, epoch)) {
        Say({{"epoch", epoch}, {"at_ns", at}});
        return;
      }
    }
  }

  const Library library;
  const ModelHandle model;
  const int64_t batch, features, keys, hot;
  const size_t threads;
  const bool reports_switches;
  const double rate;
  std::atomic<bool> ended{false};
  std::atomic<int64_t> newest{0};
  std::mutex mutex;
};

class Client {
 public:
  Client(Stage* stage, size_t number) : stage_(*stage) {
    std::mt19937_64 random(number + 1);
    std::uniform_int_distribution<int64_t> hot(0, stage->hot - 1), any(0, stage->keys - 1);
    const int64_t columns = stage->features;
    for (size_t i = 0; i < kRequests; ++i) {
      std::vector<int64_t> keys(static_cast<size_t>(stage->batch * columns));
      for (size_t j = 0; j < keys.size(); ++j)
        keys[j] = j % static_cast<size_t>(columns) == 0 ? hot(random) : any(random);
      requests_.push_back(std::move(keys));
    }
    // Clients that send at a rate take turns.
    interval_ = stage->rate > 0 ? static_cast<int64_t>(1e9 * static_cast<double>(stage->threads) / stage->rate) : 0;
    first_due_ = interval_ * static_cast<int64_t>(number) / static_cast<int64_t>(stage->threads);
  }

  void Run() {
    int64_t due = Now() + first_due_;
    for (size_t turn = 0; !stage_.ended.load(std::memory_order_relaxed); ++turn) {
      int64_t begin = Now();
      if (interval_ > 0) {
        // A late request counts from when it was due, unless only the kernel was late.
        const bool late = begin > due;
        if (!late) SleepUntil(due);
        begin = late ? due : Now();
        due += interval_;
      }
      Ask(requests_[turn % requests_.size()], begin);
    }
  }

  std::vector<int64_t> TakeLatencies() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return std::exchange(latencies_, {});
  }

  // After the end of Run.
  void AddTo(Report* report) const {
    for (const auto& [name, count] : counts_) (*report)[name] = report->value(name, size_t{0}) + count;
    for (const auto& [session, count] : sessions_) {
      Report& sum = (*report)["sessions"][std::to_string(session)];
      sum = (sum.is_null() ? size_t{0} : sum.get<size_t>()) + count;
    }
    for (const auto& change : switches_) (*report)["switches"].push_back(change);
    if (!first_wrong_.empty()) (*report)["first_wrong"].push_back(first_wrong_);
  }

 private:
  void Ask(const std::vector<int64_t>& keys, int64_t begin) {
    const std::array<int64_t, 2> dims{stage_.batch, stage_.features};
    processor_tensor input = {};
    input.struct_size = sizeof input;
    input.dtype = PROCESSOR_INT64;
    input.name = "a";
    input.dims = dims.data();
    input.rank = 2;
    input.data = keys.data();
    input.size = keys.size() * sizeof(int64_t);
    processor_request request = {};
    request.struct_size = sizeof request;
    request.inputs = &input;
    request.num_inputs = 1;
    processor_result* found = nullptr;
    processor_error error = {};
    if (stage_.library.model_run(stage_.model.get(), &request, &found, &error) != PROCESSOR_OK) {
      if (counts_["failed"]++ == 0) std::fprintf(stderr, "bench_live: %s\n", error.message);
      return;
    }
    const ResultHandle result(found, stage_.library.result_free);
    const int64_t end = Now();
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      latencies_.push_back(end - begin);
    }
    processor_result_info info = {};
    info.struct_size = sizeof info;
    stage_.library.result_get_info(result.get(), &info);
    ++counts_["answers"];
    ++sessions_[info.session];
    if (info.batch_rows > stage_.batch) ++counts_["batched"];
    Check(result, info.epoch);
    if (info.epoch != epoch_) {
      if (info.epoch < epoch_) ++counts_["backwards"];
      if (stage_.reports_switches) switches_.push_back({epoch_, info.epoch, begin_, end_, begin, end});
      epoch_ = info.epoch;
      stage_.Saw(epoch_, end);
    }
    begin_ = begin, end_ = end;
  }

  /// Each element of the answer must be of the epoch that the library names.
  void Check(const ResultHandle& result, int64_t epoch) {
    const size_t tensors = stage_.library.result_num_tensors(result.get());
    std::string wrong = tensors == 0 ? "no tensors" : "";
    for (size_t i = 0; i < tensors && wrong.empty(); ++i) {
      processor_tensor tensor = {};
      tensor.struct_size = sizeof tensor;
      stage_.library.result_tensor(result.get(), i, &tensor);
      const float expected = static_cast<float>(epoch) * (std::string_view(tensor.name) == "y" ? 3.0F : 1.0F);
      const auto* values = static_cast<const float*>(tensor.data);
      const float* last = values + tensor.size / sizeof(float);
      const float* other = std::find_if(values, last, [expected](float value) { return value != expected; });
      if (tensor.dtype != PROCESSOR_FLOAT || values == last || tensor.dims[0] != stage_.batch) {
        wrong = std::string(tensor.name) + ": another type or shape";
      } else if (other != last) {
        wrong = std::string(tensor.name) + ": " + std::to_string(*other) + " at " + std::to_string(other - values) +
                ", expected " + std::to_string(expected);
      }
    }
    if (wrong.empty()) return;
    if (counts_["wrong"]++ == 0) first_wrong_ = "epoch " + std::to_string(epoch) + ", " + wrong;
  }

  Stage& stage_;
  std::vector<std::vector<int64_t>> requests_;
  int64_t interval_ = 0, first_due_ = 0;
  int64_t epoch_ = 0, begin_ = 0, end_ = 0;  // of the last answer
  std::map<std::string, size_t> counts_;
  std::map<int32_t, size_t> sessions_;
  std::vector<std::array<int64_t, 6>> switches_;
  std::string first_wrong_;
  std::mutex mutex_;
  std::vector<int64_t> latencies_;
};

Report Latencies(std::vector<Client*> clients) {
  std::vector<int64_t> all;
  for (Client* client : clients) {
    const std::vector<int64_t> some = client->TakeLatencies();
    all.insert(all.end(), some.begin(), some.end());
  }
  std::sort(all.begin(), all.end());
  Report report = {{"requests", all.size()}};
  if (all.empty()) return report;
  for (const auto& [name, share] : {std::pair("p50_us", 0.5), std::pair("p99_us", 0.99)}) {
    report[name] = Rounded(1e-3 * static_cast<double>(Percentile(all, share)), 1);
  }
  return report;
}

Report Serve(const Arguments& arguments) {
  Stage stage(arguments);
  std::vector<std::unique_ptr<Client>> clients;
  std::vector<Client*> borrowed;
  for (size_t i = 0; i < stage.threads; ++i) {
    clients.push_back(std::make_unique<Client>(&stage, i));
    borrowed.push_back(clients.back().get());
  }
  stage.Say({{"loaded", true}});
  std::vector<std::thread> threads;
  for (Client* client : borrowed) threads.emplace_back([client] { client->Run(); });
  for (std::string line; std::getline(std::cin, line);) stage.Say(Latencies(borrowed));
  stage.ended = true;
  for (std::thread& thread : threads) thread.join();
  Report report = {{"answers", 0},
                   {"wrong", 0},
                   {"failed", 0},
                   {"backwards", 0},
                   {"batched", 0},
                   {"sessions", Report::object()},
                   {"first_wrong", Report::array()},
                   {"switches", Report::array()}};
  for (const Client* client : borrowed) client->AddTo(&report);
  stage.Say(report);
  return nullptr;
}

}  // namespace

const Program kProgram = {{{"--model", ""},
                           {"--config", ""},
                           {"--library", "libprocessor.so"},
                           {"--threads", "2"},
                           {"--rate", "0"},
                           {"--batch", "4"},
                           {"--features", "2"},
                           {"--keys", "1000"},
                           {"--hot", "1000"},
                           {"--switches", "1"}},
                          Serve};

}  // namespace processor::bench
