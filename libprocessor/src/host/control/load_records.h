// SPDX-License-Identifier: Apache-2.0
// Records for the next process of a host which versions were being loaded when this process ended, and which have been
// ready. This finds a version that kills its host, so that it can be refused while all others serve.
//
// A version is marked before its load begins. The mark is removed when the load ends in any way, or when the host is
// asked to end. If a process finds marks, the previous one died, and the marked versions are suspects: they are loaded
// after all others, one at a time. A version that was the only one marked in two such deaths, with no completed load in
// between, is refused until its entry changes.
#ifndef PROCESSOR_HOST_CONTROL_LOAD_RECORDS_H_
#define PROCESSOR_HOST_CONTROL_LOAD_RECORDS_H_

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <tuple>
#include <vector>

#include "absl/status/status.h"

namespace processor {

/// Identifies a version by its number and its entry: another entry under the same number is another version.
struct LoadKey {
  std::string model;
  int64_t number = 0;
  std::string identity;  // any text; only its digest is stored

  bool operator<(const LoadKey& other) const {
    return std::tie(model, number, identity) < std::tie(other.model, other.number, other.identity);
  }
};

/// For one thread; the version loader owns it.
class LoadRecords {
 public:
  /// The order in which versions are loaded.
  enum class Standing {
    kKnownGood,  // has been ready in this host before
    kUnknown,
    kSuspect,  // was being loaded when the host died
  };

  /// Reads the Json() of the previous process; "", like an unreadable text, stands for no records. `boot` identifies
  /// the running system: marks of another boot count as no death. `on_purpose`: the previous process was killed
  /// intentionally, so no version is blamed. `now`: the time, as text.
  static LoadRecords Read(std::string_view json, std::string_view boot, bool on_purpose, const std::string& now);

  /// A line for the log if the previous process died; else empty.
  const std::string& found() const { return found_; }

  /// Marks a version, whose load begins, until End().
  void Begin(const LoadKey& key);
  /// Removes the mark of a version whose load has ended or was given up.
  void End(const LoadKey& key, bool ready);
  /// Removes all marks permanently, because the process ends in order.
  void Close();
  bool closed() const { return closed_; }

  /// Returns the standing of a version. `baseline`: a baseline that has been ready before is never a suspect.
  Standing StandingOf(const LoadKey& key, bool baseline) const;
  /// Whether a version was ready in an earlier process.
  bool WasGood(const LoadKey& key) const;
  /// Checks whether a version may be loaded again.
  /// \return FAILED_PRECONDITION, with the times of the deaths, if not.
  absl::Status MayLoad(const LoadKey& key, bool baseline) const;

  /// Drops the records of all other versions.
  void Keep(const std::vector<LoadKey>& keys);

  std::string Json() const;
  /// Whether Json() has changed since the last call.
  bool TakeChanged();

 private:
  struct Record {
    bool loading = false;
    bool suspect = false;
    bool good = false;                // has been ready
    bool was_good = false;            // in an earlier process; not written
    std::vector<std::string> deaths;  // times of deaths in which it alone was loading
    bool Empty() const { return !loading && !suspect && !good && deaths.empty(); }
  };

  static LoadKey Digested(const LoadKey& key);
  const Record* Find(const LoadKey& key) const;
  void BlameMarked(const std::string& now);

  std::string boot_;
  std::string found_;
  std::map<LoadKey, Record> records_;  // with digests as identities
  bool changed_ = false;
  bool closed_ = false;
};

/// Returns a text that identifies the running system until its next boot; "" if there is none.
std::string BootId();

}  // namespace processor

#endif  // PROCESSOR_HOST_CONTROL_LOAD_RECORDS_H_
