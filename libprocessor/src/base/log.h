// SPDX-License-Identifier: Apache-2.0
// The library's log: one line at a time, to stderr or to the sink that the host has set. Any thread may call these
// functions.
#ifndef PROCESSOR_BASE_LOG_H_
#define PROCESSOR_BASE_LOG_H_

#include <cstdint>
#include <string_view>

namespace processor {

enum class Severity : int32_t { kInfo = 0, kWarning = 1, kError = 2 };

using LogSink = void (*)(void* user_data, int32_t severity, const char* message);

/// Sets where lines go, as processor_set_log_sink() describes.
void SetLogSink(LogSink sink, void* user_data, int32_t min_severity);

/// Logs a line; drops it if there is no memory for it.
void Log(Severity severity, std::string_view message) noexcept;

}  // namespace processor

#endif  // PROCESSOR_BASE_LOG_H_
