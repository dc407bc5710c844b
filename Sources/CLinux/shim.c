#define _GNU_SOURCE
#include "CLinux.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/futex.h>
#include <linux/membarrier.h>
#include <linux/openat2.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// When a file was last read is nobody's business, and to note it changes an inode with each mapping. Refused to who does not own the file.
int sync_open(const char *path, int flags, unsigned mode) {
  int fd = open(path, flags | O_NOATIME, mode);
  return fd < 0 && errno == EPERM ? open(path, flags, mode) : fd;
}

static int open_beneath(int directory, const char *path, int flags, unsigned mode) {
  struct open_how how = {
    .flags = (uint64_t)(unsigned)flags | O_CLOEXEC,
    .mode = (flags & O_CREAT) ? mode : 0,
    .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
  };
  return (int)syscall(SYS_openat2, directory, path, &how, sizeof how);
}

int sync_open_beneath(int directory, const char *path, int flags, unsigned mode) {
  int fd = open_beneath(directory, path, flags | O_NOATIME, mode);
  return fd < 0 && errno == EPERM ? open_beneath(directory, path, flags, mode) : fd;
}

int sync_lock_byte(int fd, int type, int64_t offset, int wait) {
  struct flock lock = {.l_type = (short)type, .l_whence = SEEK_SET, .l_start = offset, .l_len = 1};
  return fcntl(fd, wait ? F_OFD_SETLKW : F_OFD_SETLK, &lock);
}

// How long what is written lives, as far as anybody can tell: the one hint of which nothing follows. A new inode has none.
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

int sync_file_status(int fd, struct sync_file_status *status) {
  const unsigned wanted =
    STATX_TYPE | STATX_MODE | STATX_NLINK | STATX_UID | STATX_INO | STATX_SIZE | STATX_BTIME;
  struct statx answer;
  if (statx(fd, "", AT_EMPTY_PATH, wanted, &answer) != 0) return -1;
  *status = (struct sync_file_status){
    .size = answer.stx_size,
    .inode = answer.stx_ino,
    .birth = (answer.stx_mask & STATX_BTIME)
               ? (uint64_t)answer.stx_btime.tv_sec * 1000000000u + answer.stx_btime.tv_nsec
               : 0,
    .mode = answer.stx_mode,
    .links = answer.stx_nlink,
    .owner = answer.stx_uid,
  };
  return 0;
}

int sync_file_system_number(int fd, uint64_t *number) {
  struct statfs system;
  if (fstatfs(fd, &system) != 0) return -1;
  memcpy(number, &system.f_fsid, sizeof *number);
  return 0;
}

int sync_file_system_status(const char *path, uint64_t *free_bytes, uint64_t *type, int *is_read_only) {
  struct statfs answer;
  if (statfs(path, &answer) != 0) return -1;
  *free_bytes = (uint64_t)answer.f_bavail * (uint64_t)answer.f_bsize;
  // The field is signed on some machines: the magic numbers have 32 bits.
  *type = (uint64_t)(uint32_t)answer.f_type;
  *is_read_only = (answer.f_flags & ST_RDONLY) != 0;
  return 0;
}

#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

int sync_populate(void *start, uint64_t count) { return madvise(start, count, MADV_POPULATE_WRITE); }

int sync_mutex_is_awaited(const void *mutex) {
  const int *word = &((const pthread_mutex_t *)mutex)->__data.__lock;
  return (__atomic_load_n(word, __ATOMIC_RELAXED) & FUTEX_WAITERS) != 0;
}

void sync_futex_wait(const uint32_t *word, uint32_t expected, int milliseconds) {
  const struct timespec time = {milliseconds / 1000, (long)(milliseconds % 1000) * 1000000};
  // Whoever returns looks again, whatever the reason.
  syscall(SYS_futex, word, FUTEX_WAIT, expected, &time, NULL, 0);
}

void sync_futex_wake(const uint32_t *word) { syscall(SYS_futex, word, FUTEX_WAKE, INT_MAX, NULL, NULL, 0); }

void sync_futex_wait_own(const uint32_t *word, uint32_t expected) {
  syscall(SYS_futex, word, FUTEX_WAIT_PRIVATE, expected, NULL, NULL, 0);
}

void sync_futex_wake_own(const uint32_t *word) {
  syscall(SYS_futex, word, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
}

int sync_file_system(int fd) { return syncfs(fd); }

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

// Of the threads that read in the parent none is left but this one.
static void count_fork(void) {
  sync_forks++;
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
  if (!sync_readers_fence) syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
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

int sync_rename_unless_present(const char *path, const char *new_path) {
  return (int)syscall(SYS_renameat2, AT_FDCWD, path, AT_FDCWD, new_path, 1u /* RENAME_NOREPLACE */);
}

int sync_rename_exchange(const char *path, const char *other) {
  return (int)syscall(SYS_renameat2, AT_FDCWD, path, AT_FDCWD, other, 2u /* RENAME_EXCHANGE */);
}

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

void sync_zero(void *start, uint64_t count) { explicit_bzero(start, count); }
