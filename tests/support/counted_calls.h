#pragma once

#include <functional>

#if defined(__linux__) && defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
#define PENSTOCK_COUNTS_CALLS

#include <dlfcn.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdlib>

// Every allocation, release and lock of a thread counts, whichever library asks for it. For programs of one source.

namespace penstock::test {
inline thread_local long counted_calls = 0;
}

extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void* __libc_memalign(std::size_t alignment, std::size_t size);
void __libc_free(void* memory);
void* malloc(std::size_t size) {
  ++penstock::test::counted_calls;
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  ++penstock::test::counted_calls;
  return __libc_calloc(count, size);
}
void* realloc(void* memory, std::size_t size) {
  ++penstock::test::counted_calls;
  return __libc_realloc(memory, size);
}
void* aligned_alloc(std::size_t alignment, std::size_t size) {
  ++penstock::test::counted_calls;
  return __libc_memalign(alignment, size);
}
int posix_memalign(void** memory, std::size_t alignment, std::size_t size) {
  ++penstock::test::counted_calls;
  *memory = __libc_memalign(alignment, size);
  return *memory == nullptr ? ENOMEM : 0;
}
void free(void* memory) {
  ++penstock::test::counted_calls;
  __libc_free(memory);
}
#define PENSTOCK_COUNTED_LOCK(name, type)                                                 \
  int name(type* lock) {                                                                  \
    ++penstock::test::counted_calls;                                                      \
    static const auto next = reinterpret_cast<int (*)(type*)>(::dlsym(RTLD_NEXT, #name)); \
    return next(lock);                                                                    \
  }
PENSTOCK_COUNTED_LOCK(pthread_mutex_lock, pthread_mutex_t)
PENSTOCK_COUNTED_LOCK(pthread_mutex_trylock, pthread_mutex_t)
PENSTOCK_COUNTED_LOCK(pthread_rwlock_rdlock, pthread_rwlock_t)
PENSTOCK_COUNTED_LOCK(pthread_rwlock_wrlock, pthread_rwlock_t)
#undef PENSTOCK_COUNTED_LOCK
}

namespace penstock::test {

/// From now on the kernel ends this process at any call but exit.
inline void forbid_system_calls() {
  sock_filter filter[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL),
  };
  sock_fprog program = {.len = sizeof(filter) / sizeof(filter[0]), .filter = filter};
  if (::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
    ::_exit(3);
  }
}

/// Runs `work` in a process that may call nothing. Returns how that ended, as waitpid() does; 0: `work` returned true.
inline int status_without_calls(const std::function<bool()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    forbid_system_calls();
    ::syscall(SYS_exit, work() ? 0 : 1);
  }
  int status = -1;
  return ::waitpid(child, &status, 0) == child ? status : -1;
}

}  // namespace penstock::test

#endif
