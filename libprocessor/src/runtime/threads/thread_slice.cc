// SPDX-License-Identifier: Apache-2.0
#include "src/runtime/threads/thread_slice.h"

#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace processor {
namespace {

// sched_setattr(2), which C libraries before glibc 2.41 do not declare.
struct Attributes {
  uint32_t size = sizeof(Attributes);
  uint32_t policy = 0;
  uint64_t flags = 0;
  int32_t nice = 0;
  uint32_t priority = 0;
  uint64_t runtime = 0;  // with the usual policy, the slice
  uint64_t deadline = 0;
  uint64_t period = 0;
};

bool ReadAnyAttributes(int thread_id, Attributes* attributes) {
  return syscall(SYS_sched_getattr, thread_id, attributes, sizeof *attributes, 0) == 0;
}

bool ReadAttributes(int thread_id, Attributes* attributes) {
  return ReadAnyAttributes(thread_id, attributes) && attributes->policy == SCHED_OTHER;
}

}  // namespace

void SetSlice(int thread_id, int64_t slice_ns) {
  Attributes attributes;
  if (!ReadAttributes(thread_id, &attributes)) return;
  attributes.size = sizeof attributes;
  attributes.runtime = static_cast<uint64_t>(slice_ns);
  attributes.deadline = attributes.period = 0;
  syscall(SYS_sched_setattr, thread_id, &attributes, 0);
}

int64_t SliceOfThread(int thread_id) {
  Attributes attributes;
  return ReadAttributes(thread_id, &attributes) ? static_cast<int64_t>(attributes.runtime) : 0;
}

bool YieldsToNice(int nice) {
  Attributes attributes;
  if (!ReadAnyAttributes(0, &attributes)) return false;
  return attributes.policy == SCHED_IDLE || (attributes.policy == SCHED_OTHER && attributes.nice > nice);
}

}  // namespace processor
