// SPDX-License-Identifier: Apache-2.0
#include "src/base/log.h"

#include <cstdio>
#include <exception>
#include <mutex>
#include <string>

namespace processor {
namespace {

struct LogState {
  std::mutex mutex;  // held while the sink runs: that is how a former sink is known to be silent
  LogSink sink = nullptr;
  void* user_data = nullptr;
  int32_t min_severity = static_cast<int32_t>(Severity::kWarning);
};

LogState& State() {
  // Never destroyed: threads of a host may log while the process exits.
  static LogState* state = new LogState;
  return *state;
}

void LogOrThrow(Severity severity, std::string_view message) {
  LogState& state = State();
  std::lock_guard<std::mutex> lock(state.mutex);
  const int32_t number = static_cast<int32_t>(severity);
  if (number < state.min_severity) return;
  std::string text(message);
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < 0x20) c = ' ';  // one line; TensorFlow's messages may have several
  }
  if (state.sink != nullptr) {
    state.sink(state.user_data, number, text.c_str());
    return;
  }
  std::fprintf(stderr, "processor %s: %s\n", number == 0 ? "info" : number == 1 ? "warning" : "error", text.c_str());
}

}  // namespace

void SetLogSink(LogSink sink, void* user_data, int32_t min_severity) {
  LogState& state = State();
  std::lock_guard<std::mutex> lock(state.mutex);
  state.sink = sink;
  state.user_data = user_data;
  state.min_severity = min_severity;
}

void Log(Severity severity, std::string_view message) noexcept {
  try {
    LogOrThrow(severity, message);
  } catch (const std::exception&) {
  }
}

}  // namespace processor
