// SPDX-License-Identifier: Apache-2.0
// The free places of sessions, each of which is for one run at a time. A batcher owns it and uses it under its lock.
#ifndef PROCESSOR_RUNTIME_BATCHING_SESSION_PLACES_H_
#define PROCESSOR_RUNTIME_BATCHING_SESSION_PLACES_H_

#include <algorithm>
#include <cstddef>
#include <vector>

namespace processor {

/// All places of all sessions are free at first.
class SessionPlaces {
 public:
  SessionPlaces(int sessions, int places)
      : free_(static_cast<size_t>(sessions), places), num_free_(sessions * places) {}

  int num_free() const { return num_free_; }
  bool any_free() const { return num_free_ > 0; }

  /// Takes a place of the session `preferred` or of the next one that has a free place; returns the session, -1 if no
  /// place is free. A negative `preferred` means any session.
  int Take(int preferred) {
    if (num_free_ == 0) return -1;
    size_t session = static_cast<size_t>(std::max(preferred, 0)) % free_.size();
    while (free_[session] == 0) session = (session + 1) % free_.size();
    --free_[session];
    --num_free_;
    return static_cast<int>(session);
  }

  void Free(int session) {
    ++free_[static_cast<size_t>(session)];
    ++num_free_;
  }

 private:
  std::vector<int> free_;  // of each session
  int num_free_;
};

}  // namespace processor

#endif  // PROCESSOR_RUNTIME_BATCHING_SESSION_PLACES_H_
