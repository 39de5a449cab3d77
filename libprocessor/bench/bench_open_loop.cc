// SPDX-License-Identifier: Apache-2.0
// Latency of one or several models under Poisson arrivals, as a queue sees it: requests are sent when they are due,
// whether or not those before them have been answered.
//
//     bench_open_loop --plan PLAN.json --samples FILE [--library libprocessor.so]
//
// The plan: {"seconds": 10, "warmup": 1, "seed": 1, "cpu": 1, "spin_us": 200, "models": [
//   {"model": DIR, "config": {...}, "requests": FILE, "protocol": "tfserving", "rate": 500}]}
//
// `cpu` is where the generator runs (-1: anywhere); it sleeps until `spin_us` before a request is due and spins from then
// on. With "realtime" it comes before all other threads of its CPU: on the CPU of the models it takes some microseconds
// a request from them, and a pause of that CPU, which no other can see, holds up both alike. "nice" is the priority of
// all threads. Requests of a file are drawn at random.
//
// FILE gets one record per request, in the order in which they were due: struct Sample below. JSON on standard output:
// how late requests were sent, and processor time [s]: stolen, of this process, of all others; with "realtime" those of
// its CPU, else of all `cpus`.

#include <sched.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <random>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

#include "library.h"
#include "nlohmann/json.hpp"
#include "program.h"
#include "request_file.h"
#include "timing.h"

namespace processor::bench {
namespace {

/// One request. Times in nanoseconds since the first was due.
struct Sample {
  int32_t model;
  int32_t request;  // its place in the file
  int64_t due;
  int64_t sent;
  int64_t done;   // -1: it failed
  int64_t queue;  // length of its wait, as the library saw it
  int64_t run;    // length of reading it, running it and writing the answer
};

struct Served {
  std::string protocol;
  std::vector<std::string> requests;
  double rate;
  ModelHandle model;
};

int64_t Now() {
  timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return int64_t{1000000000} * now.tv_sec + now.tv_nsec;
}

void WaitUntil(int64_t due, int64_t spin) {
  if (const int64_t sleep = due - spin; sleep > Now()) {
    const timespec until{sleep / 1000000000, sleep % 1000000000};
    clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &until, nullptr);
  }
  while (Now() < due) __builtin_ia32_pause();
}

/// Processor time so far [s].
struct Machine {
  double busy = 0;    // of all processes
  double stolen = 0;  // taken by the hypervisor
  double own = 0;     // of this process, on whatever CPU
};

/// Of one CPU, or of all together (-1).
Machine ReadMachine(int cpu) {
  const std::string wanted = cpu < 0 ? "cpu" : "cpu" + std::to_string(cpu);
  std::ifstream file("/proc/stat");
  std::istringstream words;
  std::string name;
  for (std::string line; name != wanted && std::getline(file, line);) {
    words = std::istringstream(line);
    words >> name;
  }
  if (name != wanted) throw std::runtime_error("/proc/stat: no line '" + wanted + "'");
  std::array<double, 8> ticks = {};  // user, nice, system, idle, waiting, interrupts, soft interrupts, stolen
  for (double& tick : ticks) words >> tick;
  const auto second = static_cast<double>(sysconf(_SC_CLK_TCK));
  Machine machine;
  machine.busy = (ticks[0] + ticks[1] + ticks[2] + ticks[5] + ticks[6]) / second;
  machine.stolen = ticks[7] / second;
  machine.own = CpuSeconds();
  return machine;
}

struct Run {
  explicit Run(const std::string& path) : library(path) {}

  const Library library;
  std::vector<Served> models;
  std::vector<Sample> samples;
  int64_t begin = 0;
  std::atomic<size_t> left{0};
  std::atomic<size_t> failed{0};
};

void Done(void* user_data, uint64_t tag, processor_result* result, const processor_error* error) {
  const int64_t now = Now();
  Run* run = static_cast<Run*>(user_data);
  Sample& sample = run->samples[tag];
  sample.done = -1;
  if (error->code == PROCESSOR_OK) {
    processor_result_info info = {};
    info.struct_size = sizeof info;
    run->library.result_get_info(result, &info);
    sample.done = now - run->begin;
    sample.queue = info.queue_ns;
    sample.run = info.decode_ns + info.run_ns + info.encode_ns;
  } else if (run->failed.fetch_add(1) == 0) {
    std::fprintf(stderr, "bench_open_loop: %s\n", error->message);
  }
  run->library.result_free(result);
  run->left.fetch_sub(1, std::memory_order_release);
}

void Load(Run* run, const nlohmann::json& plan) {
  for (const nlohmann::json& entry : plan.at("models")) {
    const double rate = entry.at("rate");
    if (!(rate > 0)) throw std::invalid_argument("rate: expected a number above 0");
    run->models.push_back({entry.value("protocol", "tfserving"), ReadRequestFile(entry.at("requests")), rate,
                           run->library.Load(entry.at("model"), entry.at("config").dump())});
  }
}

/// Has each model answer all its requests once. Their threads start with it, at the usual priority and on their CPUs.
void AnswerEachOnce(const Run& run) {
  for (const Served& served : run.models) {
    for (const std::string& bytes : served.requests) {
      run.library.Run(served.model.get(), MakeRequest(served.protocol, bytes));
    }
  }
}

/// Draws when requests are due, for each model from a seed of its own.
void DrawSchedule(Run* run, double seconds, uint64_t seed) {
  for (size_t model = 0; model < run->models.size(); ++model) {
    std::seed_seq seeds{seed, static_cast<uint64_t>(model)};
    std::mt19937_64 random(seeds);
    std::uniform_int_distribution<int32_t> request(0, static_cast<int32_t>(run->models[model].requests.size()) - 1);
    std::exponential_distribution<double> gap(run->models[model].rate);
    for (double at = gap(random); at < seconds; at += gap(random)) {
      run->samples.push_back(
          {static_cast<int32_t>(model), request(random), static_cast<int64_t>(1e9 * at), 0, 0, 0, 0});
    }
  }
  std::sort(run->samples.begin(), run->samples.end(), [](const Sample& a, const Sample& b) { return a.due < b.due; });
}

/// Sends every request when it is due, and returns when all have been answered.
void SendOnSchedule(Run* run, int64_t spin) {
  run->left = run->samples.size();
  run->begin = Now() + 10'000'000;
  for (size_t i = 0; i < run->samples.size(); ++i) {
    Sample& sample = run->samples[i];
    const Served& served = run->models[static_cast<size_t>(sample.model)];
    const processor_request request =
        MakeRequest(served.protocol, served.requests[static_cast<size_t>(sample.request)]);
    processor_target target = {};
    target.struct_size = sizeof target;
    target.tag = i;
    target.done = Done;
    target.user_data = run;
    processor_error error;
    WaitUntil(run->begin + sample.due, spin);
    sample.sent = Now() - run->begin;
    if (run->library.model_run_async(served.model.get(), &request, &target, nullptr, &error) != PROCESSOR_OK) {
      Done(run, i, nullptr, &error);
    }
  }
  while (run->left.load(std::memory_order_acquire) > 0) WaitUntil(Now() + 1'000'000, 0);
}

Report MeasureLatencies(const Arguments& arguments) {
  std::ifstream file(arguments.Text("--plan"));
  if (!file) throw std::runtime_error(arguments.Text("--plan") + ": cannot be read");
  const nlohmann::json plan = nlohmann::json::parse(file);
  // Before the library starts threads, which inherit it.
  if (const int nice = plan.value("nice", 0); nice != 0 && setpriority(PRIO_PROCESS, 0, nice) != 0) {
    throw std::runtime_error("nice: not allowed, expected CAP_SYS_NICE");
  }
  Run run(arguments.Text("--library"));
  Load(&run, plan);
  AnswerEachOnce(run);
  const int cpu = plan.value("cpu", -1);
  if (cpu >= 0) {
    // After loading, for threads inherit it.
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(cpu, &set);
    if (sched_setaffinity(0, sizeof set, &set) != 0) throw std::runtime_error("cpu: cannot be used");
  }
  prctl(PR_SET_TIMERSLACK, 1UL);
  const bool first = plan.value("realtime", false);
  if (first) {
    const sched_param priority{1};
    if (sched_setscheduler(0, SCHED_FIFO | SCHED_RESET_ON_FORK, &priority) != 0) {
      throw std::runtime_error("realtime: not allowed, expected CAP_SYS_NICE");
    }
  }
  const auto spin = static_cast<int64_t>(1e3 * plan.value("spin_us", 200.0));
  const uint64_t seed = plan.at("seed");
  if (const double warmup = plan.value("warmup", 0.0); warmup > 0) {
    DrawSchedule(&run, warmup, seed + 1000003);
    SendOnSchedule(&run, spin);
    run.samples.clear();
  }
  DrawSchedule(&run, plan.at("seconds"), seed);
  if (run.samples.empty()) throw std::invalid_argument("rate: no request is due in so few seconds");
  const int watched = first ? cpu : -1;
  const Machine before = ReadMachine(watched);
  const int64_t begin = Now();
  SendOnSchedule(&run, spin);
  const double seconds = 1e-9 * static_cast<double>(Now() - begin);
  const Machine after = ReadMachine(watched);

  std::FILE* out = std::fopen(arguments.Text("--samples").c_str(), "wb");
  if (out == nullptr) throw std::runtime_error(arguments.Text("--samples") + ": cannot be written");
  const size_t written = std::fwrite(run.samples.data(), sizeof(Sample), run.samples.size(), out);
  if (std::fclose(out) != 0 || written != run.samples.size()) {
    throw std::runtime_error(arguments.Text("--samples") + ": cannot be written");
  }
  std::vector<int64_t> late;
  for (const Sample& sample : run.samples) late.push_back(sample.sent - sample.due);
  std::sort(late.begin(), late.end());
  const double own = after.own - before.own;
  return {{"requests", run.samples.size()},
          {"failed", run.failed.load()},
          {"seconds", Rounded(seconds, 4)},
          {"late_p50_us", Rounded(1e-3 * static_cast<double>(late[late.size() / 2]), 2)},
          {"late_p99_us", Rounded(1e-3 * static_cast<double>(late[late.size() * 99 / 100]), 2)},
          {"stolen_s", Rounded(after.stolen - before.stolen, 3)},
          {"own_s", Rounded(own, 3)},
          {"others_s", Rounded(std::max(0.0, after.busy - before.busy - own), 3)},
          {"cpus", first ? 1 : sysconf(_SC_NPROCESSORS_ONLN)}};
}

}  // namespace

const Program kProgram = {{{"--plan", ""}, {"--samples", ""}, {"--library", "libprocessor.so"}}, MeasureLatencies};

}  // namespace processor::bench
