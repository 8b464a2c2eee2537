// A step allocates nothing, locks nothing and makes no system call: allocations and locks are counted, and a filter of
// the kernel ends a process at its first call.

#include <gtest/gtest.h>

#include <cerrno>
#include <cstddef>
#include <functional>

#include "core/runtime/handles.h"
#include "core/runtime/models.h"
#include "core/runtime/networks.h"
#include "oracle/written_cells.h"
#include "penstock/cell.h"

#if defined(__linux__) && defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)

#include <dlfcn.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {
thread_local long counted = 0;
}

// Every allocation and every lock of this thread counts, whoever asks for it.
extern "C" {
void* __libc_malloc(std::size_t size);
void* __libc_calloc(std::size_t count, std::size_t size);
void* __libc_realloc(void* memory, std::size_t size);
void* malloc(std::size_t size) {
  ++counted;
  return __libc_malloc(size);
}
void* calloc(std::size_t count, std::size_t size) {
  ++counted;
  return __libc_calloc(count, size);
}
void* realloc(void* memory, std::size_t size) {
  ++counted;
  return __libc_realloc(memory, size);
}
int pthread_mutex_lock(pthread_mutex_t* mutex) {
  ++counted;
  using Lock = int (*)(pthread_mutex_t*);
  static const Lock next = reinterpret_cast<Lock>(::dlsym(RTLD_NEXT, "pthread_mutex_lock"));
  return next(mutex);
}
}

namespace penstock::test {
namespace {

/// From now on the kernel ends this process at any call but exit.
void forbid_system_calls() {
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

/// Runs `work` in a process that may call nothing; returns how that ended.
int status_without_calls(const std::function<bool()>& work) {
  const pid_t child = ::fork();
  if (child == 0) {
    forbid_system_calls();
    ::syscall(SYS_exit, work() ? 0 : 1);
  }
  int status = 0;
  EXPECT_EQ(::waitpid(child, &status, 0), child);
  return status;
}

TEST(RuntimeRealTime, TheFilterEndsAProcessThatCalls) {
  const int status = status_without_calls([] { return ::getppid() > 0; });
  EXPECT_TRUE(WIFSIGNALED(status)) << status;
}

TEST(RuntimeRealTime, TheCountersCount) {
  const long before = counted;
  std::free(std::malloc(1));
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  ::pthread_mutex_lock(&mutex);
  ::pthread_mutex_unlock(&mutex);
  EXPECT_EQ(counted - before, 2);
}

/// 1000 chunks of 4 steps; wrong rows, resets and states between them.
bool run_long(penstock_session* session) {
  float rows[8], outputs[8], state[512];
  penstock_error error;
  bool fine = true;
  for (int i = 0; i < 1000; ++i) {
    for (int j = 0; j < 8; ++j) rows[j] = static_cast<float>((i * 8 + j) % 13) * 0.25f - 1.5f;
    fine = fine && penstock_session_chunk(session, rows, 8, outputs, 8, &error) == PENSTOCK_OK;
    fine = fine && penstock_session_step(session, rows, 2, outputs, 2, &error) == PENSTOCK_OK;
    fine = fine && penstock_session_step(session, rows, 3, outputs, 2, &error) == PENSTOCK_INVALID_ARGUMENT;
    fine = fine && penstock_session_get_state(session, state, 1, &error) == PENSTOCK_INVALID_ARGUMENT;
    if (i % 100 == 0) fine = fine && penstock_session_reset(session, &error) == PENSTOCK_OK;
  }
  return fine;
}

TEST(RuntimeRealTime, EveryCellRunsWithoutAllocationsLocksAndCalls) {
  std::vector<std::string> names;
  for (const CellInfo& cell : cells()) names.emplace_back(cell.name);
  for (const WrittenCell& cell : {written_lstm(), written_norm_lstm(), written_leaky()}) {
    names.emplace_back(define_cell(cell.definition, cell.equations).name);
  }
  for (const std::string& name : names) {
    for (const Index hidden : {8, 40, 128}) {
      SCOPED_TRACE(name + " of " + std::to_string(hidden));
      const std::string file = file_of(series_model(name, hidden));
      const RuntimeModel model(file.data(), file.size());
      const RuntimeSession session(model);
      const long before = counted;
      EXPECT_TRUE(run_long(session.get()));
      EXPECT_EQ(counted, before);
      const int status = status_without_calls([&] { return run_long(session.get()); });
      EXPECT_TRUE(WIFEXITED(status)) << "signal " << WTERMSIG(status);
      EXPECT_EQ(WEXITSTATUS(status), 0);
    }
  }
}

/// 1000 steps of a network, with resets and states between them.
bool listen_long(penstock_session* session) {
  float row[13], outputs[7], state[20];
  bool fine = true;
  for (int i = 0; i < 1000; ++i) {
    for (int j = 0; j < 13; ++j) row[j] = static_cast<float>((i * 13 + j) % 11) * 0.25f - 1.0f;
    fine = fine && penstock_session_step(session, row, 13, outputs, 7, nullptr) == PENSTOCK_OK;
    fine = fine && penstock_session_get_state(session, state, 20, nullptr) == PENSTOCK_OK;
    fine = fine && penstock_session_step(session, row, 12, outputs, 7, nullptr) == PENSTOCK_INVALID_ARGUMENT;
    if (i % 100 == 0) fine = fine && penstock_session_reset(session, nullptr) == PENSTOCK_OK;
  }
  return fine;
}

TEST(RuntimeRealTime, NetworksRunWithoutAllocationsLocksAndCalls) {
  const std::string file = file_of(listener());
  const RuntimeModel model = open_network(file);
  const RuntimeSession session(model);
  const long before = counted;
  EXPECT_TRUE(listen_long(session.get()));
  EXPECT_EQ(counted, before);
  EXPECT_EQ(status_without_calls([&] { return listen_long(session.get()); }), 0);
}

TEST(RuntimeRealTime, AFadeRunsWithoutAllocationsLocksAndCalls) {
  const std::string one = file_of(series_model("lstm", 16)), two = file_of(series_model("gru", 24));
  const RuntimeModel first(one.data(), one.size()), second(two.data(), two.size());
  const RuntimeSession session(first);
  penstock_session* next = nullptr;
  ASSERT_EQ(penstock_session_open(second.get(), nullptr, 0, &next, nullptr), PENSTOCK_OK);
  ASSERT_EQ(penstock_session_replace(session.get(), next, 1000, nullptr), PENSTOCK_OK);
  const long before = counted;
  EXPECT_TRUE(run_long(session.get()));
  EXPECT_EQ(counted, before);
}

}  // namespace
}  // namespace penstock::test

#endif
