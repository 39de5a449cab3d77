// SPDX-License-Identifier: Apache-2.0
// A library to preload. Between count_calls_begin() and count_calls_end() it counts what the calling thread calls: locks of
// mutexes, allocations, and system calls. Each call is attributed to the innermost caller that is not a library of the
// compiler or of the system.
#include <dlfcn.h>
#include <errno.h>
#include <execinfo.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <signal.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#include <initializer_list>

extern "C" {
void* __libc_malloc(size_t size);
void* __libc_calloc(size_t count, size_t size);
void* __libc_realloc(void* memory, size_t size);
void* __libc_memalign(size_t alignment, size_t size);
}

namespace {

constexpr int kMaxFrames = 24;
constexpr int kMaxPlaces = 4096;

struct Place {
  const char* kind;
  const void* address;
  long number;  // of the system call
  long count;
};

Place g_places[kMaxPlaces];
int g_num_places = 0;
thread_local bool t_counting = false;

bool IsOfTheSystem(const void* address) {
  Dl_info info;
  if (dladdr(address, &info) == 0 || info.dli_fname == nullptr) return false;
  const char* slash = strrchr(info.dli_fname, '/');
  const char* name = slash == nullptr ? info.dli_fname : slash + 1;
  for (const char* prefix : {"libc.so", "libstdc++", "libgcc_s", "libpthread", "ld-linux", "libcount_calls"}) {
    if (strncmp(name, prefix, strlen(prefix)) == 0) return true;
  }
  return false;
}

void Note(const char* kind, long number = 0) {
  if (!t_counting) return;
  t_counting = false;  // what follows calls the same functions
  const int saved = errno;
  void* frames[kMaxFrames];
  const int depth = backtrace(frames, kMaxFrames);
  const void* caller = depth > 0 ? frames[depth - 1] : nullptr;
  for (int i = 1; i < depth; ++i) {
    if (IsOfTheSystem(frames[i])) continue;
    caller = frames[i];
    break;
  }
  int at = 0;
  while (at < g_num_places &&
         (g_places[at].address != caller || g_places[at].kind != kind || g_places[at].number != number))
    ++at;
  if (at == g_num_places && at < kMaxPlaces) g_places[g_num_places++] = {kind, caller, number, 0};
  if (at < kMaxPlaces) ++g_places[at].count;
  errno = saved;
  t_counting = true;
}

constexpr const char *kLock = "lock", *kAllocation = "allocation", *kSystemCall = "system call";

void* Allocate(size_t size) {
  Note(kAllocation);
  return __libc_malloc(size);
}

void* AllocateAligned(size_t alignment, size_t size) {
  Note(kAllocation);
  return __libc_memalign(alignment, size);
}

// The only place from which the filter lets system calls pass.
extern "C" long count_calls_pass(long number, long a, long b, long c, long d, long e, long f);
asm(R"(
  .text
  .globl count_calls_pass
  .hidden count_calls_pass
  .type count_calls_pass, @function
count_calls_pass:
  mov %rdi, %rax
  mov %rsi, %rdi
  mov %rdx, %rsi
  mov %rcx, %rdx
  mov %r8, %r10
  mov %r9, %r8
  mov 8(%rsp), %r9
  syscall
  .globl count_calls_passed
  .hidden count_calls_passed
count_calls_passed:
  ret
)");
extern "C" const char count_calls_passed[];

void OnSystemCall(int, siginfo_t*, void* context) {
  auto* const registers = static_cast<ucontext_t*>(context)->uc_mcontext.gregs;
  Note(kSystemCall, registers[REG_RAX]);
  registers[REG_RAX] = count_calls_pass(registers[REG_RAX], registers[REG_RDI], registers[REG_RSI], registers[REG_RDX],
                                        registers[REG_R10], registers[REG_R8], registers[REG_R9]);
}

// Makes system calls of this thread raise SIGSYS. This lasts as long as the thread.
bool TrapSystemCalls() {
  struct sigaction action = {};
  action.sa_sigaction = OnSystemCall;
  action.sa_flags = SA_SIGINFO | SA_NODEFER;
  if (sigaction(SIGSYS, &action, nullptr) != 0) return false;
  const auto passed = reinterpret_cast<unsigned long>(count_calls_passed);
  const auto low = static_cast<unsigned>(passed), high = static_cast<unsigned>(passed >> 32);
  sock_filter code[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_rt_sigreturn, 6, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit_group, 5, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, instruction_pointer)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, low, 0, 2),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, instruction_pointer) + 4),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, high, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_TRAP),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program = {sizeof code / sizeof code[0], code};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

int (*RealLock())(pthread_mutex_t*) {
  static auto* const real = reinterpret_cast<int (*)(pthread_mutex_t*)>(dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  return real;
}

}  // namespace

extern "C" {

int pthread_mutex_lock(pthread_mutex_t* mutex) noexcept {
  Note(kLock);
  return RealLock()(mutex);
}

int pthread_rwlock_rdlock(pthread_rwlock_t* lock) noexcept {
  static auto* const real = reinterpret_cast<int (*)(pthread_rwlock_t*)>(dlsym(RTLD_NEXT, "pthread_rwlock_rdlock"));
  Note(kLock);
  return real(lock);
}

void* malloc(size_t size) noexcept { return Allocate(size); }
void* calloc(size_t count, size_t size) noexcept {
  Note(kAllocation);
  return __libc_calloc(count, size);
}
void* realloc(void* memory, size_t size) noexcept {
  Note(kAllocation);
  return __libc_realloc(memory, size);
}
void* memalign(size_t alignment, size_t size) noexcept { return AllocateAligned(alignment, size); }
void* aligned_alloc(size_t alignment, size_t size) noexcept { return AllocateAligned(alignment, size); }
int posix_memalign(void** memory, size_t alignment, size_t size) noexcept {
  *memory = AllocateAligned(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}

/// Returns 0, or -1 if system calls cannot be trapped.
int count_calls_begin() {
  void* frames[2];
  backtrace(frames, 2);  // loads its library
  RealLock();
  if (!TrapSystemCalls()) return -1;
  t_counting = true;
  return 0;
}

/// Ends counting, and writes a line for each place: kind, count, number of the system call, library, offset in it.
void count_calls_end(const char* path) {
  t_counting = false;
  FILE* const file = fopen(path, "w");
  if (file == nullptr) return;
  for (int i = 0; i < g_num_places; ++i) {
    const Place& place = g_places[i];
    Dl_info info = {};
    dladdr(place.address, &info);
    fprintf(
        file, "%s\t%ld\t%ld\t%s\t%lx\t%s\n", place.kind, place.count, place.number,
        info.dli_fname == nullptr ? "" : info.dli_fname,
        static_cast<unsigned long>(static_cast<const char*>(place.address) - static_cast<const char*>(info.dli_fbase)),
        info.dli_sname == nullptr ? "" : info.dli_sname);
  }
  fclose(file);
}

}  // extern "C"
