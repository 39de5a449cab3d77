// SPDX-License-Identifier: Apache-2.0
// Teams of threads that compute requests of a few rows together, if these reach a dense tower at the same time.
//
// A row needs little arithmetic but all weights. If the weights do not fit into the cache of a core, each request waits
// for them to come from the shared cache. Therefore threads that meet at a tower make a team: the rows of all members are
// one block, and each member computes a part of the columns of every layer, always the same part, which stays in the
// cache of its core. The result of a row does not depend on the rows that are computed with it.
//
// A team spans one last-level cache at most: beyond it, exchanging rows costs more than reading all weights.
//
// No thread waits long: a member that gets no CPU or fails breaks its team up, and the others compute alone.
#ifndef PROCESSOR_KERNELS_TOWER_TEAM_H_
#define PROCESSOR_KERNELS_TOWER_TEAM_H_

#include <sched.h>

#include <cstdint>
#include <memory>

#include "src/kernels/cache_domains.h"

namespace processor {

/// The part of the work that a thread does, which is all of it unless it belongs to a team.
class TowerShare {
 public:
  virtual ~TowerShare() = default;

  /// Returns the range of `count` equal pieces of work that this thread does.
  int64_t begin(int64_t count) const { return count * rank_ / members_; }
  int64_t end(int64_t count) const { return count * (rank_ + 1) / members_; }
  bool first() const { return rank_ == 0; }
  bool alone() const { return members_ == 1; }
  int members() const { return members_; }

  /// Waits until all members have called it; then each may read what the others wrote before. Returns false if a member
  /// does not arrive within a millisecond; then nothing that was computed together may be used.
  virtual bool Sync() const { return true; }

 protected:
  int rank_ = 0;
  int members_ = 1;
};

/// Makes the teams of one tower, which owns it. Any thread may call all functions.
class TowerTeams {
 public:
  /// \param most   the most members of a team, up to kMostMembers; 1: no teams.
  /// \param rows   the most rows of a member.
  /// \param caches, current_cpu  tell where the calling thread runs. They must outlive this object.
  TowerTeams(int most, int64_t rows, const CacheDomains& caches = CacheDomains::OfThisMachine(),
             int (*current_cpu)() = sched_getcpu);
  ~TowerTeams();

  static constexpr int kMostMembers = 8;

  /// Returns how many threads should share weights of so many bytes: as many as are needed for each part to fit into the
  /// cache of a core, but not more than there are CPUs at one last-level cache.
  static int MembersFor(size_t bytes);

  /// Sets how many CPUs the process may use; 0: the number of CPUs of the main thread.
  static void SetUsableCpus(int cpus);

  /// Makes the calling thread compute alone from now on. A thread that only gets idle CPU time must call it, because the
  /// other members of its teams would have to wait for it.
  static void KeepThisThreadOut();

  class Team;

  /// A member of a team until it is destroyed. It must be kept until the outputs have been copied. Destroying it without
  /// Complete(), for example by an exception, breaks the team up.
  class Seat : public TowerShare {
   public:
    Seat() = default;
    ~Seat() override;
    Seat(const Seat&) = delete;
    Seat& operator=(const Seat&) = delete;

    bool Sync() const override;
    /// Tells, after the last Sync(), that this member has done its part.
    void Complete() { complete_ = true; }
    /// The rows of this member begin at `first_row` of `team_rows`.
    int64_t first_row() const { return first_row_; }
    int64_t team_rows() const { return team_rows_; }
    /// Returns the memory of the team, [floats], 64-byte aligned, which is the same for all members.
    float* memory() const;

   private:
    friend class TowerTeams;
    Team* team_ = nullptr;
    int64_t first_row_ = 0;
    int64_t team_rows_ = 0;
    mutable int syncs_ = 0;
    bool complete_ = false;
  };

  /// Joins a team of requests of the same `kind`, for example with the same widths, at the cache of the calling thread;
  /// waits for a moment if another thread was here recently. Returns false if the caller must compute alone, also if there
  /// is no memory for a team.
  /// `floats`: the memory of a team, the same for all requests of a kind.
  bool Join(int64_t rows, uint64_t kind, int64_t floats, Seat* seat);

 private:
  class Domain;

  const int most_;
  const int64_t rows_;
  const CacheDomains& caches_;
  int (*const current_cpu_)();
  const std::unique_ptr<Domain[]> domains_;  // [caches]
};

}  // namespace processor

#endif  // PROCESSOR_KERNELS_TOWER_TEAM_H_
