// SPDX-License-Identifier: Apache-2.0
/// Runs the event loop of the simulator: cores, queues of groups, lending, fork and join, interference.
///
/// All arrays belong to Python (cost_model/simulation/engine.py, which reads the members of the structs from
/// `engine_structs`). Times are in microseconds. Between two calls, all values that a policy decides are constant.
/// Three random numbers are drawn per arrival and none elsewhere: runs with one seed have the same requests for every
/// policy and rate.
#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

namespace {

constexpr double kNever = std::numeric_limits<double>::infinity();
constexpr int kMantissaBits = 6;
constexpr int kBuckets = 25 << kMantissaBits;
constexpr int kTable = 16384;
constexpr int64_t kQueue = 8192;
constexpr int kAffinityReach = 4;
/// Work below which a task has ended: sums of slices are not exact.
constexpr double kDoneUs = 1e-6;

}  // namespace

/// Declare a struct and keep the text of its members, from which Python reads their names, types and order.
#define SHARED_STRUCT(name, ...) \
  struct name {                  \
    __VA_ARGS__                  \
  };                             \
  constexpr char k##name##Members[] = #name "{" #__VA_ARGS__ "}"

extern "C" {
// clang-format off

/// Describes requests; M models. `rows` [S, kTable] and `noise` [V, kTable] are quantile tables.
SHARED_STRUCT(Load,
  int64_t models;
  const double *fixed_us, *per_row_us;
  const int64_t *rows_of, *noise_of;
  const double *rows, *noise;
  const int64_t* threads;
  const double *parallel, *bytes_per_row, *slo_us, *deadline_us, *excused_from_us, *excused_until_us;
);

/// A task; `left_us` is the part of its work that has not run yet.
SHARED_STRUCT(Task,
  double arrival_us, work_us, left_us, bytes;
  int32_t model, slot;
);

/// A running task, ordered by its end.
SHARED_STRUCT(Running,
  double end_us;
  int64_t core;
);

/// All values that change; C cores, G groups, M models.
///
/// If `slice_us` is above 0, each model has a pool of C threads, and threads take turns on the cores of their group: a
/// thread runs for a slice, then waits in the queue of the group. Requests that find all threads of their model in use
/// wait in `pending`. Otherwise tasks run to their end.
SHARED_STRUCT(State,
  int64_t cores, groups, nodes, running, idle_total, queued_total, free_slots, slots, events;
  uint64_t random;
  double now_us, hazard, slice_us;
  Running* heap;
  int32_t *core_owner, *core_node, *core_last, *core_model;
  double *core_rate, *core_used_us, *node_rate;
  Task* core_task;
  int32_t *idle, *idle_count, *group_of;
  uint8_t *lends, *borrows, *oversubscribed;
  double* lend_after_us;
  int32_t* limit;
  Task* queue;
  int64_t *queue_head, *queue_size;
  Task* pending;
  int64_t *pending_head, *pending_size;
  int32_t* active;
  int32_t *slot_pending, *slot_failed, *slot_free;
  int64_t *arrived, *completed, *dropped, *missed, *judged;
  double *busy_us, *alone_us, *borrowed_us, *latency_us;
  int32_t *in_system, *queued;
  int64_t* histogram;
);

/// All values that are constant until `end_us`.
SHARED_STRUCT(Segment,
  double end_us, rate_per_us;
  const double* alias_share;
  const int64_t* alias_other;
  const double* factor;
  double switch_cost, oversubscription, bandwidth, knee, node_bytes_per_us, idle_start_us;
);

// clang-format on
}

namespace {

/// SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
inline uint64_t Random(State* s) {
  uint64_t z = s->random += 0x9E3779B97F4A7C15ull;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
  return z ^ (z >> 31);
}

inline double Exponential(State* s) { return -std::log((double(Random(s) >> 11) + 0.5) * 0x1p-53); }

void Push(State* s, Running item) {
  int64_t place = s->running++;
  while (place > 0) {
    const int64_t parent = (place - 1) >> 1;
    if (s->heap[parent].end_us <= item.end_us) break;
    s->heap[place] = s->heap[parent];
    place = parent;
  }
  s->heap[place] = item;
}

int64_t Pop(State* s) {
  const int64_t core = s->heap[0].core;
  const int64_t size = --s->running;
  const Running last = s->heap[size];
  int64_t place = 0;
  for (;;) {
    int64_t child = 2 * place + 1;
    if (child >= size) break;
    child += child + 1 < size && s->heap[child + 1].end_us < s->heap[child].end_us;
    if (s->heap[child].end_us >= last.end_us) break;
    s->heap[place] = s->heap[child];
    place = child;
  }
  s->heap[place] = last;
  return core;
}

/// Use the exponent and the upper 6 bits of the mantissa: buckets 1.1 to 1.6 % wide from 1 µs on.
inline int64_t Bucket(double latency_us) {
  const double value = std::max(latency_us, 1.0);
  const double one = 1.0;
  int64_t bits, base;
  std::memcpy(&bits, &value, sizeof bits);
  std::memcpy(&base, &one, sizeof base);
  return std::min<int64_t>((bits >> (52 - kMantissaBits)) - (base >> (52 - kMantissaBits)), kBuckets - 1);
}

/// Count a request that has ended or was dropped.
void Finish(State* s, const Load* load, int32_t model, double arrival, bool failed) {
  --s->in_system[model];
  const double latency = s->now_us - arrival;
  if (failed) {
    ++s->dropped[model];
  } else {
    ++s->completed[model];
    s->latency_us[model] += latency;
    ++s->histogram[int64_t(model) * kBuckets + Bucket(latency)];
  }
  if (arrival >= load->excused_from_us[model] && arrival < load->excused_until_us[model]) return;
  ++s->judged[model];
  s->missed[model] += failed || latency > load->slo_us[model];
}

void EndTask(State* s, const Load* load, int32_t model, int32_t slot, double arrival, bool failed) {
  if (slot < 0) return Finish(s, load, model, arrival, failed);
  s->slot_failed[slot] |= failed;
  if (--s->slot_pending[slot] > 0) return;
  s->slot_free[s->free_slots++] = slot;
  Finish(s, load, model, arrival, s->slot_failed[slot]);
}

/// Run a task, or its next slice: its time alone, multiplied by the slow-down that its neighbors cause.
void Start(State* s, const Segment* g, int64_t core, const Task& task, int64_t group, bool idle) {
  double slower = 1.0;
  if (s->core_last[core] >= 0 && s->core_last[core] != task.model) slower += g->switch_cost;
  if (s->oversubscribed[group]) slower += g->oversubscription * double(s->queue_size[group]) / double(s->cores);
  const int32_t node = s->core_node[core];
  const double rate = task.bytes / task.work_us;
  if (g->bandwidth > 0 && rate > 0) {
    const double use = (s->node_rate[node] + rate) / g->node_bytes_per_us;
    if (use > g->knee) slower *= std::max(use, 1.0 + g->bandwidth * (use - g->knee) / (1.0 - g->knee));
  }
  const double part = s->slice_us > 0 ? std::min(task.left_us, s->slice_us - s->core_used_us[core]) : task.left_us;
  const double took = part * slower + (idle ? g->idle_start_us : 0.0);
  s->node_rate[node] += rate;
  s->core_rate[core] = rate;
  s->core_last[core] = task.model;
  s->core_model[core] = task.model;
  s->core_used_us[core] += part;
  s->core_task[core] = task;
  s->core_task[core].left_us -= part;
  s->busy_us[task.model] += took;
  s->alone_us[task.model] += part;
  if (s->core_owner[core] != group) s->borrowed_us[task.model] += took;
  Push(s, {s->now_us + took, core});
}

/// Start a task on a core that has run something else.
void Begin(State* s, const Segment* g, int64_t core, const Task& task, int64_t group, bool idle) {
  s->core_used_us[core] = 0.0;
  Start(s, g, core, task, group, idle);
}

inline bool Begun(const Task& task) { return task.left_us < task.work_us; }

void Enqueue(State* s, int64_t group, const Task& task) {
  s->queue[group * kQueue + ((s->queue_head[group] + s->queue_size[group]) & (kQueue - 1))] = task;
  ++s->queue_size[group];
  ++s->queued_total;
  s->queued[task.model] += !Begun(task);
}

/// Take the next request for a thread of a model that has become free; without one, the thread sleeps.
bool NextPending(State* s, const Load* load, int32_t model, Task* task) {
  while (s->pending_size[model] > 0) {
    *task = s->pending[model * kQueue + s->pending_head[model]];
    s->pending_head[model] = (s->pending_head[model] + 1) & (kQueue - 1);
    --s->pending_size[model];
    --s->queued[model];
    if (s->now_us - task->arrival_us <= load->deadline_us[model]) return true;
    EndTask(s, load, model, task->slot, task->arrival_us, true);
  }
  --s->active[model];
  return false;
}

/// Start the oldest task of a queue that can still be in time; return whether there was one.
bool RunHead(State* s, const Load* load, const Segment* g, int64_t group, int64_t core, bool idle) {
  while (s->queue_size[group] > 0) {
    const Task task = s->queue[group * kQueue + s->queue_head[group]];
    s->queue_head[group] = (s->queue_head[group] + 1) & (kQueue - 1);
    --s->queue_size[group];
    --s->queued_total;
    s->queued[task.model] -= !Begun(task);
    if (Begun(task) || s->now_us - task.arrival_us <= load->deadline_us[task.model]) {
      Begin(s, g, core, task, group, idle);
      return true;
    }
    EndTask(s, load, task.model, task.slot, task.arrival_us, true);
    Task next;
    if (s->slice_us > 0 && NextPending(s, load, task.model, &next)) Enqueue(s, group, next);
  }
  return false;
}

void PutIdle(State* s, int64_t core) {
  const int64_t group = s->core_owner[core];
  s->idle[group * s->cores + s->idle_count[group]++] = int32_t(core);
  ++s->idle_total;
}

/// Take the core that became idle last, or one of the few before it that ran this model last.
int64_t TakeIdle(State* s, int64_t group, int32_t model) {
  int32_t* idle = s->idle + group * s->cores;
  const int32_t count = s->idle_count[group]--;
  int32_t chosen = count - 1;
  for (int32_t place = count - 1; place >= std::max(0, count - kAffinityReach); --place) {
    if (s->core_last[idle[place]] == model) {
      chosen = place;
      break;
    }
  }
  const int64_t core = idle[chosen];
  std::copy(idle + chosen + 1, idle + count, idle + chosen);
  --s->idle_total;
  return core;
}

/// Run waiting tasks of a group on idle cores of other groups that lend.
void Borrow(State* s, const Load* load, const Segment* g, int64_t group) {
  for (int64_t other = 0; other < s->groups; ++other) {
    while (s->lends[other] && other != group && s->idle_count[other] > 0 && s->queue_size[group] > 0) {
      const Task& head = s->queue[group * kQueue + s->queue_head[group]];
      if (s->now_us - head.arrival_us < s->lend_after_us[group]) return;
      const int64_t core = TakeIdle(s, other, head.model);
      if (!RunHead(s, load, g, group, core, true)) PutIdle(s, core);
    }
  }
}

/// Give a free core its next task: from its owner, otherwise from the group whose oldest task is closest to its SLO.
void NextTask(State* s, const Load* load, const Segment* g, int64_t core) {
  const int64_t owner = s->core_owner[core];
  if (s->queue_size[owner] > 0 && RunHead(s, load, g, owner, core, false)) return;
  while (s->lends[owner] && s->queued_total > 0) {
    int64_t best = -1;
    double most = 0;
    for (int64_t group = 0; group < s->groups; ++group) {
      if (group == owner || !s->borrows[group] || s->queue_size[group] == 0) continue;
      const Task& head = s->queue[group * kQueue + s->queue_head[group]];
      const double age = s->now_us - head.arrival_us;
      const double used = age / load->slo_us[head.model];
      if (age >= s->lend_after_us[group] && used >= most) best = group, most = used;
    }
    if (best < 0) break;
    if (RunHead(s, load, g, best, core, false)) return;
  }
  PutIdle(s, core);
}

/// End a slice: the thread continues with its request or its model's next one, unless other threads wait for the core.
void EndSlice(State* s, const Load* load, const Segment* g, int64_t core) {
  Task task = s->core_task[core];
  const int64_t group = s->group_of[task.model];
  if (task.left_us <= kDoneUs) {
    EndTask(s, load, task.model, task.slot, task.arrival_us, false);
    const int32_t model = task.model;
    if (!NextPending(s, load, model, &task)) return NextTask(s, load, g, core);
  }
  if (s->core_used_us[core] >= s->slice_us - kDoneUs) {
    s->core_used_us[core] = 0.0;
    const bool guest = s->core_owner[core] != group;
    if ((guest || s->queue_size[group] > 0) && s->queue_size[group] < kQueue) {
      Enqueue(s, group, task);
      // Its own group may have a core that is idle.
      if (guest && s->idle_count[group] > 0) {
        const int64_t own = TakeIdle(s, group, task.model);
        if (!RunHead(s, load, g, group, own, true)) PutIdle(s, own);
      }
      return NextTask(s, load, g, core);
    }
  }
  Start(s, g, core, task, group, false);
}

void Arrive(State* s, const Load* load, const Segment* g) {
  const uint64_t pick = Random(s);
  int64_t model = int64_t(((pick >> 32) * uint64_t(load->models)) >> 32);
  if (double(pick & 0xFFFFFFFFull) * 0x1p-32 >= g->alias_share[model]) model = g->alias_other[model];
  const uint64_t draw = Random(s);
  const double rows = load->rows[load->rows_of[model] * kTable + int64_t(draw & (kTable - 1))];
  const double noise = load->noise[load->noise_of[model] * kTable + int64_t((draw >> 24) & (kTable - 1))];
  ++s->arrived[model];
  ++s->in_system[model];
  const int64_t group = s->group_of[model];
  const int64_t parts = load->threads[model];
  if (s->in_system[model] > s->limit[model] || s->queue_size[group] + parts > kQueue ||
      s->pending_size[model] + parts > kQueue || (parts > 1 && s->free_slots == 0)) {
    return Finish(s, load, int32_t(model), s->now_us, true);
  }
  const double divided = 1.0 - load->parallel[model] + load->parallel[model] / double(parts);
  Task task;
  task.arrival_us = s->now_us;
  task.work_us = (load->fixed_us[model] + load->per_row_us[model] * rows * divided) * noise * g->factor[model];
  task.left_us = task.work_us;
  task.bytes = load->bytes_per_row[model] * rows / double(parts);
  task.model = int32_t(model);
  task.slot = -1;
  if (parts > 1) {
    task.slot = s->slot_free[--s->free_slots];
    s->slot_pending[task.slot] = int32_t(parts);
    s->slot_failed[task.slot] = 0;
  }
  for (int64_t part = 0; part < parts; ++part) {
    if (s->slice_us > 0 && s->active[model] >= s->cores) {
      s->pending[model * kQueue + ((s->pending_head[model] + s->pending_size[model]) & (kQueue - 1))] = task;
      ++s->pending_size[model];
      ++s->queued[model];
      continue;
    }
    s->active[model] += s->slice_us > 0;
    if (s->idle_count[group] > 0) {
      Begin(s, g, TakeIdle(s, group, task.model), task, group, true);
    } else {
      Enqueue(s, group, task);
    }
  }
  if (s->borrows[group] && s->idle_total > 0 && s->queue_size[group] > 0) Borrow(s, load, g, group);
}

}  // namespace

extern "C" {

#define ENGINE_EXPORT __attribute__((visibility("default")))

/// Return the members of the structs as declared above, each struct after the structs that it uses.
ENGINE_EXPORT const char* engine_structs() {
  static const std::string members =
      std::string(kTaskMembers) + kRunningMembers + kLoadMembers + kStateMembers + kSegmentMembers;
  return members.c_str();
}

/// Run until the end of the segment.
ENGINE_EXPORT void engine_advance(State* s, const Load* load, const Segment* g) {
  if (s->hazard < 0) s->hazard = Exponential(s);
  double arrival = g->rate_per_us > 0 ? s->now_us + s->hazard / g->rate_per_us : kNever;
  for (;; ++s->events) {
    const double done = s->running > 0 ? s->heap[0].end_us : kNever;
    if (std::min(arrival, done) > g->end_us) break;
    if (arrival <= done) {
      s->now_us = arrival;
      Arrive(s, load, g);
      arrival = s->now_us + Exponential(s) / g->rate_per_us;
    } else {
      s->now_us = done;
      const int64_t core = Pop(s);
      s->core_model[core] = -1;
      s->node_rate[s->core_node[core]] -= s->core_rate[core];
      if (s->slice_us > 0) {
        EndSlice(s, load, g, core);
        continue;
      }
      const Task& task = s->core_task[core];
      EndTask(s, load, task.model, task.slot, task.arrival_us, false);
      NextTask(s, load, g, core);
    }
  }
  // The rest of the exponential draw carries over into the next segment, for any rate there.
  if (g->rate_per_us > 0) s->hazard = (arrival - g->end_us) * g->rate_per_us;
  s->now_us = g->end_us;
}

/// Assign cores and models to other groups: running tasks stay, waiting tasks move to their model's new group.
ENGINE_EXPORT void engine_regroup(State* s, const Load* load, const Segment* g, const int32_t* core_owner,
                                  const int32_t* group_of) {
  std::vector<Task> waiting;
  for (int64_t group = 0; group < s->groups; ++group) {
    for (int64_t step = 0; step < s->queue_size[group]; ++step) {
      waiting.push_back(s->queue[group * kQueue + ((s->queue_head[group] + step) & (kQueue - 1))]);
    }
    s->queue_size[group] = s->queue_head[group] = 0;
    s->idle_count[group] = 0;
  }
  s->idle_total = s->queued_total = 0;
  std::copy(group_of, group_of + load->models, s->group_of);
  std::copy(core_owner, core_owner + s->cores, s->core_owner);
  std::stable_sort(waiting.begin(), waiting.end(),
                   [](const Task& a, const Task& b) { return a.arrival_us < b.arrival_us; });
  for (const Task& task : waiting) {
    const int64_t group = s->group_of[task.model];
    if (s->queue_size[group] == kQueue) {
      s->queued[task.model] -= !Begun(task);
      s->active[task.model] -= s->slice_us > 0;
      EndTask(s, load, task.model, task.slot, task.arrival_us, true);
      continue;
    }
    s->queue[group * kQueue + s->queue_size[group]++] = task;
    ++s->queued_total;
  }
  for (int64_t core = 0; core < s->cores; ++core) {
    if (s->core_model[core] < 0) NextTask(s, load, g, core);
  }
}
}
