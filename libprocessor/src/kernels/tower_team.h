// SPDX-License-Identifier: Apache-2.0
// Requests of a few rows that are at a dense tower at the same time, computed together.
//
// A row needs little arithmetic and all weights. Where these do not fit into the cache that a core has for itself, every
// request waits for them to come from the shared one, again and again. Threads that meet at a tower therefore make a team:
// the rows of all are one block, and each thread computes a part of the columns of every layer, always the same part,
// which stays in its own cache. A row's result does not depend on the rows that are computed with it.
//
// No thread waits for long: a thread that is not given a CPU, or that fails, breaks its team up, and the others compute
// alone.
#ifndef PROCESSOR_KERNELS_TOWER_TEAM_H_
#define PROCESSOR_KERNELS_TOWER_TEAM_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "src/kernels/huge_memory.h"

namespace processor {

/// What a thread that computes alone, or a member of a team, has to do.
class TowerShare {
 public:
  virtual ~TowerShare() = default;

  /// From which to which of `count` equal things this thread computes.
  int64_t begin(int64_t count) const { return count * rank_ / members_; }
  int64_t end(int64_t count) const { return count * (rank_ + 1) / members_; }
  bool first() const { return rank_ == 0; }
  bool alone() const { return members_ == 1; }
  int members() const { return members_; }

  /// Waits until all members have come here: what they wrote before can be read after. False: some member does not come,
  /// and nothing that has been computed together is to be used. It waits for some milliseconds at most, and sleeps if it
  /// takes long.
  virtual bool Sync() const { return true; }

 protected:
  int rank_ = 0;
  int members_ = 1;
};

/// Makes teams at one tower. All calls may come from any thread.
class TowerTeams {
 public:
  /// \param most   members of a team, at most kMostMembers; 1: no teams are made.
  /// \param rows   of one member, at most.
  TowerTeams(int most, int64_t rows);
  ~TowerTeams();

  static constexpr int kMostMembers = 8;

  /// How many threads should share weights of that many bytes: as many as it takes for each part to fit into a core's own
  /// cache, and not more than there are CPUs.
  static int MembersFor(size_t bytes);

  /// Says how many CPUs the process may use where the main thread's do not; 0: they do.
  static void SetUsableCpus(int cpus);

  /// From now on the calling thread computes alone. For a thread that gets a CPU only if no other wants it: those that
  /// met it would wait for it.
  static void KeepThisThreadOut();

  class Team;

  /// A seat in a team, given back when it is destroyed. It must be kept until the outputs have been copied. Whoever gives it
  /// back without Complete() breaks the team up, as does an exception.
  class Seat : public TowerShare {
   public:
    Seat() = default;
    ~Seat() override;
    Seat(const Seat&) = delete;
    Seat& operator=(const Seat&) = delete;

    bool Sync() const override;
    /// After the last Sync(): this member has done its part.
    void Complete() { complete_ = true; }
    /// The rows of this member are `first_row`... of `team_rows`.
    int64_t first_row() const { return first_row_; }
    int64_t team_rows() const { return team_rows_; }
    /// Memory of the team, [floats], 64-byte aligned. The same for all members.
    float* memory() const;

   private:
    friend class TowerTeams;
    TowerTeams* owner_ = nullptr;
    Team* team_ = nullptr;
    int64_t first_row_ = 0;
    int64_t team_rows_ = 0;
    mutable int syncs_ = 0;
    bool complete_ = false;
  };

  /// Joins other requests of the same `kind`; those of another kind (other widths, say) are computed apart.
  /// `floats`: memory that a team needs, the same for all of a kind. Waits for a moment if another thread was here
  /// lately. False: compute alone.
  bool Join(int64_t rows, uint64_t kind, int64_t floats, Seat* seat);

 private:
  void NoteVisit(uint64_t thread, int64_t now_ns);
  bool WorthWaiting(uint64_t thread, int64_t now_ns);
  Team* TakeTeam(int64_t floats);
  void Leave(Team* team);

  const int most_;
  const int64_t rows_;

  std::mutex mutex_;
  Team* open_ = nullptr;  // waits for members
  std::vector<std::unique_ptr<Team>> teams_;
  std::vector<Team*> idle_;
  // Who came last, when, and when another one did.
  uint64_t last_thread_ = 0;
  int64_t last_ns_ = 0;
  int64_t other_ns_ = 0;
  // Waiting that was futile is not tried again at once.
  uint32_t patience_ = 0;  // calls that will not wait
  uint32_t backoff_ = 1;   // how many the next futile wait costs
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_TOWER_TEAM_H_
