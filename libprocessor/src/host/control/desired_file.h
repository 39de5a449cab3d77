// SPDX-License-Identifier: Apache-2.0
// Reads desired.json whenever it has changed, and keeps the accepted state in accepted.json for the next process. The
// host's control owns it.
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
  /// Begins with the state that the previous process accepted last, if any. `directory` is borrowed.
  DesiredFile(StateDirectory* directory, std::string host_id);

  /// Reads desired.json if it has changed.
  /// \return whether state() has changed.
  bool Read();
  /// Writes accepted.json if it is out of date.
  void WriteAccepted();

  const DesiredState& state() const { return state_; }
  /// Bytes that all versions together may take; 0 before a state was accepted.
  int64_t memory_limit() const { return memory_limit_; }
  /// Why desired.json, or a part of it, is not followed; "" if all of it is.
  const std::string& error() const { return error_; }
  /// Why its writer has no state yet; "" if it has one. The state that was accepted before is followed meanwhile.
  const std::string& waiting() const { return waiting_; }
  /// Whether it is known what to serve: a state was accepted, or there never was a desired.json.
  bool known() const { return !accepted_.empty() || (refused_.empty() && waiting_.empty() && !missing_); }

 private:
  void Follow(AcceptedState accepted);

  StateDirectory& directory_;
  const std::string host_id_;
  DesiredState state_;
  int64_t memory_limit_ = 0;
  std::string accepted_;  // the text of the followed state; empty: none was ever accepted
  std::string refused_;   // why the file as last read, or a part of it, is not followed
  std::string error_;
  std::string waiting_;
  bool missing_ = false;
  bool dirty_ = false;  // accepted.json is out of date
  int64_t write_at_ns_ = 0;
};

}  // namespace processor

#endif  // PROCESSOR_HOST_CONTROL_DESIRED_FILE_H_
