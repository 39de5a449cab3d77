// SPDX-License-Identifier: Apache-2.0
// What one process of a host tells the next about loads: which versions were being loaded when it ended, and which have
// been ready before. So a version that kills its host is found and kept out, while all others serve.
//
// A version is marked before it begins to load, and the mark goes when that ends in any way, or when the host is told to
// end. A process that finds marks follows one that died. Versions that it finds marked are suspects: they are loaded
// after all others, one at a time. One that was the only one marked in two such deaths, with no completed load between
// them, is refused until its entry changes.
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

/// A version, and what it is made from: another entry under the same number is another version.
struct LoadKey {
  std::string model;
  int64_t number = 0;
  std::string identity;  // any text; a digest of it is kept

  bool operator<(const LoadKey& other) const {
    return std::tie(model, number, identity) < std::tie(other.model, other.number, other.identity);
  }
};

/// For one thread.
class LoadRecords {
 public:
  /// In which order versions are loaded.
  enum class Standing {
    kKnownGood,  // has been ready in this host before
    kUnknown,
    kSuspect,  // was being loaded when the host died
  };

  /// Reads what Json() of the process before gave; "" if there is nothing. What cannot be read counts as nothing.
  /// `boot`: identifies the running system; marks of another boot count no death. `on_purpose`: whoever ended the
  /// process before said that the death is nobody's fault. `now`: the time, as text.
  static LoadRecords Read(std::string_view json, std::string_view boot, bool on_purpose, const std::string& now);

  /// What the reading found, in a line for the log; empty if no death.
  const std::string& found() const { return found_; }

  /// A load begins: a mark until End().
  void Begin(const LoadKey& key);
  /// A load has ended, or is given up.
  void End(const LoadKey& key, bool ready);
  /// The process ends in order: no marks any more, whatever happens from now on.
  void Close();
  bool closed() const { return closed_; }

  /// `baseline`: of a baseline that has been ready before no death is held against it.
  Standing StandingOf(const LoadKey& key, bool baseline) const;
  /// Had this version been ready before this process began?
  bool WasGood(const LoadKey& key) const;
  /// \return FAILED_PRECONDITION, with the times, for a version that is not to be loaded again.
  absl::Status MayLoad(const LoadKey& key, bool baseline) const;

  /// Forgets all versions but these.
  void Keep(const std::vector<LoadKey>& keys);

  std::string Json() const;
  /// Does Json() say something else than when this was asked last?
  bool TakeChanged();

 private:
  struct Record {
    bool loading = false;
    bool suspect = false;
    bool good = false;                // has been ready
    bool was_good = false;            // in a process before; not kept
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

/// Identifies the running system until it is started again; "" if it does not say.
std::string BootId();

}  // namespace processor

#endif  // PROCESSOR_HOST_CONTROL_LOAD_RECORDS_H_
