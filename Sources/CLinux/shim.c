#define _GNU_SOURCE
#include "CLinux.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int sync_lock_byte(int fd, int type, int64_t offset, int wait) {
  struct flock lock = {.l_type = (short)type, .l_whence = SEEK_SET, .l_start = offset, .l_len = 1};
  return fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &lock);
}

int sync_is_byte_locked(int fd, int64_t offset) {
  struct flock lock = {.l_type = F_WRLCK, .l_whence = SEEK_SET, .l_start = offset, .l_len = 1};
  return fcntl(fd, F_OFD_GETLK, &lock) != 0 ? -1 : lock.l_type != F_UNLCK;
}

// Descriptors plus one; 0 marks a free slot. `placeholder` is the descriptor that replaces them in a child.
static atomic_int dropped[sync_dropped_most];
static atomic_int placeholder = -1;

void sync_drop_in_children(int fd) {
  // Installs the fork handler, which calls `drop_descriptors`.
  sync_fork_generation();
  int none = -1;
  int root = atomic_load(&placeholder) < 0 ? openat(AT_FDCWD, "/", O_PATH | O_CLOEXEC) : -1;
  if (root >= 0 && !atomic_compare_exchange_strong(&placeholder, &none, root)) close(root);
  for (int index = 0; index < sync_dropped_most; index++) {
    int free = 0;
    if (atomic_compare_exchange_strong(&dropped[index], &free, fd + 1)) return;
  }
}

void sync_keep_in_children(int fd) {
  for (int index = 0; index < sync_dropped_most; index++) {
    int own = fd + 1;
    if (atomic_compare_exchange_strong(&dropped[index], &own, 0)) return;
  }
}

// Runs in the child after fork(3): only async-signal-safe calls. The descriptor number stays taken, since the
// child's copy of the owning object closes it.
static void drop_descriptors(void) {
  int root = atomic_load(&placeholder);
  for (int index = 0; index < sync_dropped_most; index++) {
    int fd = atomic_exchange(&dropped[index], 0) - 1;
    if (fd >= 0 && root >= 0) dup3(root, fd, O_CLOEXEC);
  }
}

// Expected lifetime of written data: the one hint without any effect. A new inode has none.
static const uint64_t mark = RWH_WRITE_LIFE_MEDIUM;

void sync_mark(int fd) {
  uint64_t hint = mark;
  (void)fcntl(fd, F_SET_RW_HINT, &hint);
}

int sync_is_marked(int fd) {
  uint64_t hint = 0;
  return fcntl(fd, F_GET_RW_HINT, &hint) == 0 && hint == mark;
}

int sync_duplicate_above_standard(int fd) { return fcntl(fd, F_DUPFD_CLOEXEC, 3); }

int sync_set_nonblocking(int fd) {
  int flags = fcntl(fd, F_GETFL);
  return flags < 0 ? -1 : fcntl(fd, F_SETFL, flags | O_NONBLOCK);
}

int sync_terminal_columns(int fd) {
  struct winsize size;
  return ioctl(fd, TIOCGWINSZ, &size) == 0 ? size.ws_col : -1;
}
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

int sync_populate(void *start, uint64_t count) { return madvise(start, count, MADV_POPULATE_WRITE); }

int sync_touch_for_writing(void *start, uint64_t count) {
  static const uint32_t unused;
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  const int add_nothing = FUTEX_OP(FUTEX_OP_ADD, 0, FUTEX_OP_CMP_EQ, 0);
  for (uintptr_t at = (uintptr_t)start; at < (uintptr_t)start + count; at = (at & ~(page - 1)) + page) {
    const long woken = syscall(
        SYS_futex, &unused, FUTEX_WAKE_OP | FUTEX_PRIVATE_FLAG, 0, NULL, (void *)(at & ~(uintptr_t)3), add_nothing);
    if (woken < 0) return -1;
  }
  return 0;
}

int sync_allocate_mapped(void *start, uint64_t count) {
  if (sync_populate(start, count) == 0) return 0;
  return errno == EINVAL || sync_is_refused(errno) ? sync_touch_for_writing(start, count) : -1;
}

void sync_futex_wait(const uint32_t *word, uint32_t expected, int milliseconds) {
  const struct timespec time = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
  // The caller checks its condition again, whatever the reason for returning.
  syscall(SYS_futex, word, FUTEX_WAIT, expected, &time, NULL, 0);
}

void sync_futex_wake(const uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0); }

void sync_futex_wake_one(const uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0); }

void sync_futex_wait_own(const uint32_t *word, uint32_t expected) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

void sync_futex_wake_own(const uint32_t *word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

int sync_file_system(int fd) {
  if (syncfs(fd) == 0) return 0;
  if (!sync_is_refused(errno)) return -1;
  // Syncs all file systems, and does not report write errors.
  sync();
  return 0;
}

int sync_file_begin(int fd) { return sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE); }

int sync_file_write_back(int fd, uint64_t offset, uint64_t count) {
  unsigned flags = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
  return sync_file_range(fd, (off_t)offset, (off_t)count, flags);
}

int64_t sync_last_nonzero(const void *start, uint64_t count) {
  const unsigned char *bytes = start;
  while (count % 8 != 0) {
    if (bytes[--count] != 0) return (int64_t)count;
  }
  while (count > 0) {
    uint64_t word;
    memcpy(&word, bytes + count - 8, 8);
    if (word != 0) break;
    count -= 8;
  }
  while (count > 0) {
    if (bytes[--count] != 0) return (int64_t)count;
  }
  return -1;
}

unsigned sync_forks;
static pthread_once_t fork_once = PTHREAD_ONCE_INIT;

_Thread_local uint64_t *sync_own_reader_word;
_Alignas(64) uint64_t sync_all_reader_words[sync_reader_words * sync_reader_stride];
static atomic_uchar reader_claims[sync_reader_words];
static atomic_int claimed_reader_words;
static pthread_key_t reader_key;
static pthread_once_t reader_once = PTHREAD_ONCE_INIT;

int sync_readers_fence = 1;

static void ask_for_barriers(void) {
  sync_readers_fence = syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) != 0;
}

// In the child only the forking thread is left: no other reader exists.
static void count_fork(void) {
  sync_forks++;
  drop_descriptors();
  for (int index = 0; index < sync_reader_words; index++) *sync_reader_word_at(index) = 0;
  if (!sync_readers_fence) ask_for_barriers();
}
static void watch_forks(void) { pthread_atfork(NULL, NULL, count_fork); }

unsigned sync_fork_generation(void) {
  pthread_once(&fork_once, watch_forks);
  return sync_forks;
}

static void release_reader_word(void *word) {
  sync_own_reader_word = NULL;
  atomic_store(&reader_claims[((uint64_t *)word - sync_all_reader_words) / sync_reader_stride], 0);
}

void sync_await_readers(void) {
  atomic_thread_fence(memory_order_seq_cst);
  if (sync_readers_fence) return;
  if (syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0) return;
  // The process has entered a sandbox since it registered. Readers that begin later see the flag and use a
  // fence of their own; the store of one that began before stays in a processor's store buffer for far less
  // than this delay.
  const struct timespec time = {0, 10000000};
  __atomic_store_n(&sync_readers_fence, 1, __ATOMIC_SEQ_CST);
  nanosleep(&time, NULL);
  atomic_thread_fence(memory_order_seq_cst);
}

static void prepare_reading(void) {
  pthread_key_create(&reader_key, release_reader_word);
  ask_for_barriers();
}

uint64_t *sync_claim_reader_word(void) {
  pthread_once(&reader_once, prepare_reading);
  for (int index = 0; index < sync_reader_words; index++) {
    unsigned char free = 0;
    if (!atomic_compare_exchange_strong(&reader_claims[index], &free, 1)) continue;
    int claimed = atomic_load(&claimed_reader_words);
    while (claimed <= index && !atomic_compare_exchange_weak(&claimed_reader_words, &claimed, index + 1)) {
    }
    sync_own_reader_word = sync_reader_word_at(index);
    pthread_setspecific(reader_key, sync_own_reader_word);
    return sync_own_reader_word;
  }
  return NULL;
}

int sync_claimed_reader_words(void) { return atomic_load(&claimed_reader_words); }

static __thread void *thread_cell;
static pthread_key_t thread_cell_key;
static pthread_once_t thread_cell_once = PTHREAD_ONCE_INIT;
static void (*thread_cell_drop)(void *);

static void drop_thread_cell(void *value) {
  thread_cell = NULL;
  thread_cell_drop(value);
}

static void make_thread_cell_key(void) { pthread_key_create(&thread_cell_key, drop_thread_cell); }

void *sync_thread_cell(void) { return thread_cell; }

void sync_set_thread_cell(void *value, void (*drop)(void *)) {
  thread_cell_drop = drop;
  pthread_once(&thread_cell_once, make_thread_cell_key);
  pthread_setspecific(thread_cell_key, value);
  thread_cell = value;
}

int sync_disable_cancelling(void) {
  int state = PTHREAD_CANCEL_ENABLE;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
  return state;
}

void sync_restore_cancelling(int state) {
  if (state != PTHREAD_CANCEL_DISABLE) pthread_setcancelstate(state, NULL);
}

_Thread_local unsigned char sync_thread_end_is_watched;
static pthread_key_t thread_end_key;
static pthread_once_t thread_end_once = PTHREAD_ONCE_INIT;
static void (*_Atomic thread_end_hook)(void);

static void end_thread(void *unused) {
  (void)unused;
  // A destructor that runs later and takes the mutex once more is watched again.
  sync_thread_end_is_watched = 0;
  void (*hook)(void) = atomic_load(&thread_end_hook);
  if (hook) hook();
}

static void make_thread_end_key(void) { pthread_key_create(&thread_end_key, end_thread); }

void sync_on_thread_end(void (*hook)(void)) { atomic_store(&thread_end_hook, hook); }

void sync_begin_watching_thread_end(void) {
  pthread_once(&thread_end_once, make_thread_end_key);
  // Any value but null.
  pthread_setspecific(thread_end_key, &thread_end_key);
  sync_thread_end_is_watched = 1;
}

static int argument_count;
static char **arguments;

__attribute__((constructor)) static void keep_arguments(int count, char **words, char **environment) {
  (void)environment;
  argument_count = count;
  arguments = words;
}

int sync_argument_count(void) { return argument_count; }

const char *sync_argument(int index) {
  return index >= 0 && index < argument_count ? arguments[index] : NULL;
}

char **sync_environment(void) { return environ; }

void sync_zero(void *start, uint64_t count) { explicit_bzero(start, count); }

static _Thread_local uint64_t held_ranks;

uint64_t sync_held_ranks(void) { return held_ranks; }

void sync_set_held_ranks(uint64_t ranks) { held_ranks = ranks; }
