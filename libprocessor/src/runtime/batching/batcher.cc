// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/batching/batcher.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "src/runtime/batching/batch_seat.h"
#include "src/runtime/requests/deadline.h"
#include "src/runtime/stats/stats.h"

namespace processor {
namespace {

constexpr int64_t kNever = BatchEntry::Seat::kNever;
// Deadlines that do not fit into nanoseconds count as none.
int64_t DeadlineNs(int64_t deadline_us) {
  return deadline_us == 0 || deadline_us > INT64_MAX / 1000 ? kNever : 1000 * std::max<int64_t>(deadline_us, 0);
}

}  // namespace

Batcher::Batcher(Setup setup) : setup_(std::move(setup)), places_(setup_.sessions, setup_.places) {}

void Batcher::SetOptions(const BatchOptions& options) {
  std::lock_guard<std::mutex> lock(mutex_);
  options_ = options;
  on_.store(options.mode != BatchMode::kOff, std::memory_order_relaxed);
  // Entries may be due now, and waiting threads have the old options.
  for (BatchEntry* entry = waiting_.front(); entry != nullptr; entry = entry->next_) entry->overdue_ = true;
  for (int i = places_.num_free(); i >= 0; --i) HandOut(-1, -1).IgnoreError();
  wake_.notify_all();
}

BatchOptions Batcher::options() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return options_;
}

absl::Status Batcher::Prepare(BatchEntry& entry) {
  entry.prepared_ = true;
  return entry.Prepare();
}

absl::Status Batcher::Run(BatchEntry& entry, int preferred) {
  int session = -1;
  entry.cpu_ = threads_.Here();
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopped_) return stop_status_;
    if (options_.mode != BatchMode::kTimed && MayTakePlace(entry.cpu_)) session = places_.Take(preferred);
    if (session >= 0) threads_.BeginRun(entry.cpu_);
  }
  // If there is no free place, the request is decoded while it waits.
  if (absl::Status s = Prepare(entry); !s.ok()) {
    if (session >= 0) PassOn(session, &entry);
    if (entry.returning_) EndReturn(entry.cpu_);
    return s;
  }
  if (session < 0) {
    Seat seat;
    absl::Status ended;
    if (!WaitForPlace(entry, seat, preferred, &ended, &session) && !ended.ok()) return ended;
  }
  if (session >= 0) {
    Lead(&entry, session);
    // The next run begins before the responses of this one are encoded.
    PassOn(session, &entry);
    Deliver(entry.next_);
  }
  entry.Ran();
  if (entry.returning_) EndReturn(entry.cpu_);
  return absl::OkStatus();
}

// Returns true if the entry may run on `session`, and false if it has ended with `status`.
bool Batcher::WaitForPlace(BatchEntry& entry, Seat& seat, int preferred, absl::Status* status, int* session) {
  entry.seat_ = &seat;
  int64_t due_ns = kNever;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    if (stopped_) {
      *status = stop_status_;
      return false;
    }
    List(&entry);
    HandOut(preferred, entry.cpu_).IgnoreError();
    if (options_.mode == BatchMode::kTimed) due_ns = DueNs(entry);
  }
  const int64_t deadline_ns = DeadlineNs(entry.deadline_us);
  while (!seat.WaitUntil(std::min(due_ns, deadline_ns))) {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!entry.listed_) {
      lock.unlock();
      seat.WaitUntil(kNever);  // another thread runs it
      break;
    }
    const int64_t now_ns = NowNs();
    if (now_ns >= deadline_ns) {
      Unlist(&entry);
      *status = DeadlinePassed();
      return false;
    }
    if (now_ns < due_ns) continue;
    *session = places_.Take(preferred);
    if (*session >= 0) {
      TakeSeat(&entry);
      return true;
    }
    entry.overdue_ = true;
    due_ns = kNever;  // the thread that ends a run sees that it is due
  }
  *session = seat.session();
  *status = seat.status();
  return *session >= 0;
}

absl::Status Batcher::Start(BatchEntry* entry, int preferred) {
  std::lock_guard<std::mutex> lock(mutex_);
  if (stopped_) return stop_status_;
  const size_t waiting = num_started_ + num_postponed_.load(std::memory_order_relaxed);
  if (waiting >= setup_.max_waiting) {
    return absl::ResourceExhaustedError(
        absl::StrCat("model: ", waiting, " requests wait, expected fewer than max_queue_size for each session"));
  }
  List(entry);
  const absl::Status status = HandOut(preferred, -1);
  if (!status.ok() && entry->listed_) Unlist(entry);
  return status;
}

bool Batcher::Postpone(BatchEntry* entry) noexcept {
  // Counted first, since Resume() may come before Postpone() returns.
  num_postponed_.fetch_add(1, std::memory_order_relaxed);
  if (entry->Postpone()) return true;
  EndPostponed();
  return false;
}

void Batcher::Resume(BatchEntry* entry) noexcept {
  absl::Status status;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    EndPostponed();
    status = stop_status_;
    if (!stopped_) {
      List(entry);
      status = HandOut(-1, -1);
      if (status.ok() || !entry->listed_) return;
      Unlist(entry);
    }
  }
  entry->Fail(status);
}

BatchEntry* Batcher::Remove(uint64_t id) {
  std::lock_guard<std::mutex> lock(mutex_);
  for (BatchEntry* entry = waiting_.front(); entry != nullptr; entry = entry->next_) {
    if (entry->seat_ != nullptr || entry->id != id) continue;
    Unlist(entry);
    return entry;
  }
  return nullptr;
}

void Batcher::Serve(int session) noexcept {
  for (;;) {
    BatchEntry* first = nullptr;
    {
      std::unique_lock<std::mutex> lock(mutex_);
      for (int64_t when_ns = kNever; (first = Due(&when_ns)) == nullptr; when_ns = kNever) {
        if (num_started_ == 0 || watchers_ > 0) return places_.Free(session);
        ++watchers_;
        wake_.wait_until(lock, DeadlinePoint(when_ns / 1000 + 1));
        --watchers_;
      }
      if (first->seat_ != nullptr) {
        TakeSeat(first);
      } else {
        Unlist(first);
      }
      // Another thread has to watch the entries that are not due yet.
      if (options_.mode == BatchMode::kTimed) HandOut(-1, -1).IgnoreError();
    }
    if (first->seat_ != nullptr) return first->seat_->Lead(session);
    if (!first->prepared_) {
      if (const absl::Status s = Prepare(*first); !s.ok()) {
        first->Fail(s);
        continue;
      }
      if (Postpone(first)) continue;
    }
    Lead(first, session);
    Deliver(first);
  }
}

void Batcher::ReturnPlace(int session) noexcept {
  std::lock_guard<std::mutex> lock(mutex_);
  places_.Free(session);
}

void Batcher::Stop(const absl::Status& status) {
  BatchEntry* left = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    stopped_ = true;
    stop_status_ = status;
    while (BatchEntry* entry = waiting_.front()) {
      Unlist(entry);
      entry->next_ = left;
      left = entry;
    }
    wake_.notify_all();
  }
  while (left != nullptr) {
    BatchEntry* const entry = std::exchange(left, left->next_);
    if (entry->seat_ != nullptr) {
      entry->seat_->End(status);
    } else {
      entry->Fail(status);
    }
  }
}

// Passes the place of the ended run of `first` to the next entry, because this thread has other work.
void Batcher::PassOn(int session, BatchEntry* first) noexcept {
  Seat* seat = nullptr;
  {
    std::lock_guard<std::mutex> lock(mutex_);
    threads_.EndRun(first->cpu_);
    for (BatchEntry* entry = ByCpu() ? first : nullptr; entry != nullptr; entry = entry->next_) {
      if (entry->seat_ == nullptr && entry != first) continue;
      entry->returning_ = true;
      threads_.BeginReturn(entry->cpu_);
    }
    int64_t when_ns = kNever;
    BatchEntry* const next = NextOn(first->cpu_, &when_ns);
    if (next == nullptr && (num_started_ == 0 || watchers_ > 0)) return places_.Free(session);
    if (next != nullptr && next->seat_ != nullptr) seat = TakeSeat(next);
  }
  if (seat != nullptr) {
    seat->Lead(session);
  } else if (!setup_.call_worker(session).ok()) {
    Serve(session);
  }
}

// Called when a thread that has returned to `cpu` has written its response: the last one gives free places to waiting
// entries.
void Batcher::EndReturn(int cpu) noexcept {
  std::unique_lock<std::mutex> lock(mutex_);
  threads_.EndReturn(cpu);
  while (!waiting_.empty() && MayTakePlace(cpu)) {
    int64_t when_ns = kNever;
    BatchEntry* const next = NextOn(cpu, &when_ns);
    if (next == nullptr || next->seat_ == nullptr) return HandOut(-1, cpu).IgnoreError();
    Seat* const seat = TakeSeat(next);
    const int session = places_.Take(-1);
    // The thread that wakes needs the lock.
    lock.unlock();
    seat->Lead(session);
    lock.lock();
  }
}

void Batcher::Deliver(BatchEntry* first) noexcept {
  while (first != nullptr) {
    BatchEntry* const entry = std::exchange(first, first->next_);
    if (entry->seat_ != nullptr) {
      entry->seat_->End(absl::OkStatus());
    } else {
      entry->Ran();
    }
  }
}

void Batcher::List(BatchEntry* entry) {
  if (entry->sequence_ == 0) {
    entry->sequence_ = ++sequence_;
    entry->arrived_ns_ = NowNs();
  }
  waiting_.Insert(entry);
  waiting_rows_ += std::max<int64_t>(entry->rows, 1);
  if (entry->seat_ == nullptr) ++num_started_;
  num_waiting_.store(waiting_.size(), std::memory_order_relaxed);
}

void Batcher::Unlist(BatchEntry* entry) {
  waiting_.Remove(entry);
  waiting_rows_ -= std::max<int64_t>(entry->rows, 1);
  if (entry->seat_ == nullptr) --num_started_;
  num_waiting_.store(waiting_.size(), std::memory_order_relaxed);
}

// Takes an entry from the list, so that its thread leads the next run.
BatchEntry::Seat* Batcher::TakeSeat(BatchEntry* entry) {
  Unlist(entry);
  threads_.BeginRun(entry->cpu_);
  return entry->seat_;
}

// Returns when an entry must not wait for more requests any longer, in the mode kTimed.
int64_t Batcher::DueNs(const BatchEntry& entry) const {
  if (entry.overdue_ || (entry.prepared_ && (entry.rows == 0 || entry.rows >= options_.max_rows)))
    return entry.arrived_ns_;
  int64_t due_ns = entry.arrived_ns_ + 1000 * options_.max_wait_us;
  const int64_t deadline_ns = DeadlineNs(entry.deadline_us);
  if (deadline_ns != kNever) due_ns = std::min(due_ns, deadline_ns - usual_run_ns_.load(std::memory_order_relaxed));
  return due_ns;
}

// Returns the entry with which a free place should begin; null if nothing is due before `when_ns`.
BatchEntry* Batcher::Due(int64_t* when_ns) const {
  BatchEntry* const front = waiting_.front();
  if (front == nullptr || options_.mode != BatchMode::kTimed || waiting_rows_ >= options_.max_rows) return front;
  const int64_t now_ns = NowNs();
  for (BatchEntry* entry = front; entry != nullptr; entry = entry->next_) {
    const int64_t due_ns = DueNs(*entry);
    if (due_ns <= now_ns) return entry;
    *when_ns = std::min(*when_ns, due_ns);
  }
  return nullptr;
}

// Returns whether a thread of `cpu` may take a place: the threads that return there come first, and each CPU to which
// threads return keeps a place. `cpu`: -1 for none.
bool Batcher::MayTakePlace(int cpu) const {
  if (!ByCpu()) return places_.any_free();
  return !threads_.AnyReturnTo(cpu) && places_.num_free() > threads_.num_cpus();
}

// Returns the entry with which a place should begin that is free for `cpu`: as Due(), but an entry of the same CPU goes
// before others of its priority, and no entry goes before the threads that return to its CPU. On a CPU without threads at
// work nobody looks after the entries, so the first of the list is not passed over there.
BatchEntry* Batcher::NextOn(int cpu, int64_t* when_ns) const {
  BatchEntry* const due = Due(when_ns);
  if (due == nullptr || due->seat_ == nullptr || !ByCpu()) return due;
  if (threads_.AnyReturnTo(cpu)) return nullptr;
  if (due->overdue_ || !threads_.AnyOn(due->cpu_)) return due;
  BatchEntry* other = nullptr;
  for (BatchEntry* entry = due; entry != nullptr && entry->priority == due->priority; entry = entry->next_) {
    if (entry->cpu_ == cpu) return entry;
    if (other == nullptr && !threads_.AnyReturnTo(entry->cpu_)) other = entry;
  }
  return other;
}

// Called after an entry was added: finds a thread that runs it, or watches it until it is due. `cpu`: of the entry's
// thread; -1 if it has none.
absl::Status Batcher::HandOut(int preferred, int cpu) {
  int64_t when_ns = kNever;
  BatchEntry* const next = NextOn(cpu, &when_ns);
  if (watchers_ > 0) {
    wake_.notify_all();  // they have places, and check again
    return absl::OkStatus();
  }
  const bool has_thread = next != nullptr && next->seat_ != nullptr;
  if (next == nullptr && num_started_ == 0) return absl::OkStatus();
  if (has_thread ? !MayTakePlace(cpu) : !places_.any_free()) return absl::OkStatus();
  const int session = places_.Take(preferred);
  if (has_thread) {
    TakeSeat(next)->Lead(session);
    return absl::OkStatus();
  }
  const absl::Status status = setup_.call_worker(session);
  if (!status.ok()) places_.Free(session);
  return status;
}

}  // namespace processor
