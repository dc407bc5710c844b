// Functions that Swift cannot import from glibc: variadic ones, system calls without a wrapper, and those
// hidden by _GNU_SOURCE.
#pragma once

#include <stdint.h>

// Words are shared with files and other processes in native byte order, and locations in them have 64 bits.
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__ || __SIZEOF_POINTER__ != 8
#error "SyncStore needs a 64-bit, little-endian processor"
#endif

#include "CLinuxFaults.h"
#include "CLinuxFiles.h"
#include "CLinuxLine.h"
#include "CLinuxSockets.h"

// fcntl(2) is variadic. An open file description lock on one byte: released when its last descriptor is
// closed, also by death. `type` is F_RDLCK, F_WRLCK or F_UNLCK.
int sync_lock_byte(int fd, int type, int64_t offset, int wait);

// F_OFD_GETLK: 1 if another open file description locks the byte, 0 if none does, -1 and errno if unknown.
int sync_is_byte_locked(int fd, int64_t offset);

// In children forked from now on, `fd` no longer leads to its file: the locks of the open file description
// end with this process, even if a child lives. At most `sync_dropped_most` descriptors; others are inherited
// as usual. Only fork(3) calls the handler that does it.
enum { sync_dropped_most = 1024 };
void sync_drop_in_children(int fd);
// Undoes `sync_drop_in_children`. To be called before `fd` is closed.
void sync_keep_in_children(int fd);

// F_SET_RW_HINT: a mark that the kernel keeps with the inode in its memory, and writes to no disk. No effect
// where unsupported.
void sync_mark(int fd);

// F_GET_RW_HINT: 1 if the mark is set; 0 also where unsupported.
int sync_is_marked(int fd);

// A duplicate of `fd` with a number above 2, close-on-exec.
int sync_duplicate_above_standard(int fd);

// Makes `fd` non-blocking.
int sync_set_nonblocking(int fd);

// ioctl(2) is variadic. TIOCGWINSZ: the columns of a terminal; 0 if unknown, -1 if it is none.
int sync_terminal_columns(int fd);
// madvise(2) with MADV_POPULATE_WRITE: populates the pages now. 0, or -1 where the kernel cannot.
int sync_populate(void *start, uint64_t count);

// Faults each page in for writing and changes nothing: FUTEX_WAKE_OP adds 0 to a word of it, on which no thread
// waits. -1 with EFAULT where a store would raise SIGBUS.
int sync_touch_for_writing(void *start, uint64_t count);

// Allocates the blocks of a shared mapping of a file. -1 with EFAULT or ENOSPC where a store would raise SIGBUS,
// on every kernel. Costs a call per page where MADV_POPULATE_WRITE (Linux 5.14) is refused.
int sync_allocate_mapped(void *start, uint64_t count);

// Prefetches the cache line at `address`, which need not even be mapped.
static inline void sync_prefetch(const void *address) { __builtin_prefetch(address); }

// Spin-wait hint.
static inline void sync_pause(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  // "yield" does nothing on most cores; "isb" takes about as long as the pause of x86.
  __asm__ volatile("isb" ::: "memory");
#endif
}

// syncfs(2) is hidden behind _GNU_SOURCE.
int sync_file_system(int fd);

// sync_file_range(2): starts writeback of a file's dirty pages without waiting.
int sync_file_begin(int fd);

// Writes back a range of the file and waits for it; not durable. -1 and errno if a write failed, which a
// later sync need not report again.
int sync_file_write_back(int fd, uint64_t offset, uint64_t count);

// The offset of the last byte that is not zero; -1 if all are.
int64_t sync_last_nonzero(const void *start, uint64_t count);

// Counts the forks of this process since the first call: a store opened before a fork belongs to the parent.
unsigned sync_fork_generation(void);

// `sync_fork_generation` for callers that have called it before.
extern unsigned sync_forks;
static inline unsigned sync_forks_seen(void) { return sync_forks; }

// The calling thread's reader word: the epoch since which it reads without a lock, on a cache line of its
// own. NULL if too many threads have one. The next word of the line counts lookups; it stays when the thread
// ends, and another thread takes the line.
enum { sync_reader_words = 512, sync_reader_stride = 8 };
extern _Thread_local uint64_t *sync_own_reader_word;
extern uint64_t sync_all_reader_words[sync_reader_words * sync_reader_stride];
uint64_t *sync_claim_reader_word(void);
static inline uint64_t *sync_reader_word(void) {
  return sync_own_reader_word ? sync_own_reader_word : sync_claim_reader_word();
}
// The word numbered `index`.
static inline uint64_t *sync_reader_word_at(int index) {
  return &sync_all_reader_words[index * sync_reader_stride];
}
// Number of words ever claimed, counted from the first.
int sync_claimed_reader_words(void);

// Whether each reader needs its own fence between its store and its loads. Not where the kernel can run one
// on all threads (membarrier(2)): then a reader needs no instruction that waits for memory.
extern int sync_readers_fence;
// Stores in a thread's own word that it reads since `epoch`. Its later loads see the memory as of then, or
// newer.
static inline void sync_begin_reading(uint64_t *word, uint64_t epoch) {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
  // The sanitizer does not model membarrier.
  __atomic_exchange_n(word, epoch, __ATOMIC_SEQ_CST);
  return;
#endif
#endif
  if (__builtin_expect(sync_readers_fence, 0)) {
    __atomic_exchange_n(word, epoch, __ATOMIC_SEQ_CST);
  } else {
    __atomic_store_n(word, epoch, __ATOMIC_RELAXED);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
  }
}
// On return every reader is visible in its word; a reader that is not visible loads what was stored before
// this call.
void sync_await_readers(void);

// futex(2) has no wrapper in glibc. Sleeps while `word`, which processes may share, holds `expected` and no
// thread wakes it, at most `milliseconds`.
void sync_futex_wait(const uint32_t *word, uint32_t expected, int milliseconds);
// Wakes all sleepers, in all processes.
void sync_futex_wake(const uint32_t *word);
// Wakes one sleeper.
void sync_futex_wake_one(const uint32_t *word);
// Futex wait and wake among the threads of this process, without a timeout.
void sync_futex_wait_own(const uint32_t *word, uint32_t expected);
void sync_futex_wake_own(const uint32_t *word);

// Prefetches the bytes from `start` on, without waiting. Any address is allowed: nothing is read.
static inline void sync_prefetch_range(const void *start, uint64_t count) {
  const uint64_t line = 64;
  uint64_t first = (uint64_t)start & ~(line - 1);
  for (uint64_t next = first; next < (uint64_t)start + count; next += line) __builtin_prefetch((const void *)next);
}

// pthread_setcancelstate(3): disables cancellation of the calling thread. Returns the state for
// `sync_restore_cancelling`.
int sync_disable_cancelling(void);
void sync_restore_cancelling(int state);

// `hook` is called at the end of each thread that has called `sync_watch_thread_end`, on that thread.
void sync_on_thread_end(void (*hook)(void));
extern _Thread_local unsigned char sync_thread_end_is_watched;
void sync_begin_watching_thread_end(void);
static inline void sync_watch_thread_end(void) {
  if (__builtin_expect(!sync_thread_end_is_watched, 0)) sync_begin_watching_thread_end();
}

// The arguments of main, as the C library passes them to constructors: available without /proc, too. 0 and
// NULL where it does not.
int sync_argument_count(void);
const char *sync_argument(int index);
// The variables of this process, for one that it starts.
char **sync_environment(void);

// The variables of the process, "NAME=value" each, ended by a null pointer. `environ` is a global that Swift
// cannot check.
char **sync_environment(void);

// The ranks of the locks that this thread holds, a bit for each.
uint64_t sync_held_ranks(void);
void sync_set_held_ranks(uint64_t ranks);

// A thread-local word, null at first. Swift has no thread-local variables.
void *sync_thread_cell(void);

// Sets it; `drop`, equal for all threads, gets it when the thread ends.
void sync_set_thread_cell(void *value, void (*drop)(void *));

// explicit_bzero(3) is hidden behind _GNU_SOURCE: zeroing that the compiler cannot remove.
void sync_zero(void *start, uint64_t count);
