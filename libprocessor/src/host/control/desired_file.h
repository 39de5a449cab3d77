// SPDX-License-Identifier: Apache-2.0
// What a host follows: reads desired.json whenever it has changed, and keeps what was accepted in accepted.json for the
// next process. The host's control owns it.
#ifndef PROCESSOR_HOST_CONTROL_DESIRED_FILE_H_
#define PROCESSOR_HOST_CONTROL_DESIRED_FILE_H_

#include <cstdint>
#include <string>

#include "src/host/desired/accepted_state.h"
#include "src/host/desired/desired_state.h"
#include "src/host/files/state_directory.h"

namespace processor {

/// For the control thread.
class DesiredFile {
 public:
  /// Begins with what the process before accepted last, if there is something. `directory` is borrowed.
  DesiredFile(StateDirectory* directory, std::string host_id);

  /// Reads desired.json if it has changed.
  /// \return whether state() is another one now.
  bool Read();
  /// Writes accepted.json if it does not say yet what is followed.
  void WriteAccepted();

  const DesiredState& state() const { return state_; }
  /// Bytes that all versions together may take; 0 before anything was accepted.
  int64_t memory_limit() const { return memory_limit_; }
  /// Why desired.json is not followed, or not as a whole; "" if it is.
  const std::string& error() const { return error_; }
  /// Whether it is known what to serve: something was accepted, or nothing was ever desired.
  bool known() const { return !accepted_.empty() || (refused_.empty() && !missing_); }

 private:
  void Follow(AcceptedState accepted);

  StateDirectory& directory_;
  const std::string host_id_;
  DesiredState state_;
  int64_t memory_limit_ = 0;
  std::string accepted_;  // the text of what is followed; empty: nothing was ever accepted
  std::string refused_;   // why the file, as it was read last, is not followed, or not as a whole
  std::string error_;
  bool missing_ = false;
  bool dirty_ = false;  // accepted.json says something else
  int64_t write_at_ns_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_HOST_CONTROL_DESIRED_FILE_H_
