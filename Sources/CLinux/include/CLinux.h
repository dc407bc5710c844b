// What Swift cannot import from glibc: variadic functions, calls without a wrapper, and what _GNU_SOURCE hides.
#pragma once

#include <stdint.h>

// Words are shared with files and other processes as this processor has them, and places in them have 64 bits.
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__ || __SIZEOF_POINTER__ != 8
#error "SyncStore needs a 64-bit, little-endian processor"
#endif

#include "CLinuxFaults.h"
#include "CLinuxFiles.h"
#include "CLinuxLine.h"
#include "CLinuxSockets.h"

// fcntl(2) is variadic. A lock of the open file description on one byte: it goes with the last descriptor of it, also
// by death. `type` is F_RDLCK, F_WRLCK or F_UNLCK.
int sync_lock_byte(int fd, int type, int64_t offset, int wait);

// F_OFD_GETLK: 1 if another open file description has a lock on the byte, 0 if none has, -1 and errno if the kernel does not say.
int sync_is_byte_locked(int fd, int64_t offset);

// In a child that is forked from now on, `fd` no longer leads to its file: the locks of the open file description end with this
// process, though the child lives. At most `sync_dropped_most` descriptors; others are inherited as usual. Only fork(3) calls
// the handler that does it.
enum { sync_dropped_most = 1024 };
void sync_drop_in_children(int fd);
// Ends that. To be called before `fd` is closed.
void sync_keep_in_children(int fd);

// F_SET_RW_HINT: a mark that the kernel keeps with the inode in its memory, and writes to no disk. Nothing happens where it cannot.
void sync_mark(int fd);

// F_GET_RW_HINT: is it there? 0 also where the kernel does not tell.
int sync_is_marked(int fd);

// A duplicate of `fd` with a number above 2, closed on exec.
int sync_duplicate_above_standard(int fd);

// Reads and writes on `fd` return at once.
int sync_set_nonblocking(int fd);

// ioctl(2) is variadic. TIOCGWINSZ: the columns of a terminal; 0 where it does not tell, -1 if it is none.
int sync_terminal_columns(int fd);
// madvise(2) with MADV_POPULATE_WRITE: finds memory for the pages now. 0, or -1 where the kernel cannot.
int sync_populate(void *start, uint64_t count);

// Lets the processor fetch the cache line at `address`, which need not even be mapped.
static inline void sync_prefetch(const void *address) { __builtin_prefetch(address); }

// Tells the processor that it is waiting for another one.
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

// sync_file_range(2): begins to write what is dirty of a file to the disk, and waits for none of it.
int sync_file_begin(int fd);

// The same of a part of the file, and waits until the disk has taken it: that makes nothing durable. -1 and errno if something could not
// be written, which a later sync need not say again.
int sync_file_write_back(int fd, uint64_t offset, uint64_t count);

// The offset of the last byte that is not zero; -1 if all are.
int64_t sync_last_nonzero(const void *start, uint64_t count);

// How often this process was forked since it first asked: a store opened before belongs to the parent.
unsigned sync_fork_generation(void);

// The same for who has asked before.
extern unsigned sync_forks;
static inline unsigned sync_forks_seen(void) { return sync_forks; }

// The word in which this thread says since when it reads without a lock: one for each thread, on a cache line of its own.
// NULL if too many threads have one.
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
// How many of them were ever claimed, from the first.
int sync_claimed_reader_words(void);

// Must each reader put its loads behind its store by itself? Not where the kernel does it for all threads at once
// (membarrier(2)), which is why a reader then needs no instruction that waits for memory.
extern int sync_readers_fence;
// Notes in a thread's own word that it reads since `epoch`. What it loads afterwards is what stood there then, or later.
static inline void sync_begin_reading(uint64_t *word, uint64_t epoch) {
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
  // The sanitizer knows nothing of membarrier.
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
// From here on the words of all threads say what they read: who reads and is not seen loads what is stored already.
void sync_await_readers(void);

// futex(2) has no wrapper in glibc. Sleeps as long as `word`, which processes may share, holds `expected` and nobody wakes it, and
// no longer than that.
void sync_futex_wait(const uint32_t *word, uint32_t expected, int milliseconds);
// Wakes all who sleep there, in all processes.
void sync_futex_wake(const uint32_t *word);
// Wakes one of them.
void sync_futex_wake_one(const uint32_t *word);
// The same among the threads of this process, and for as long as it takes.
void sync_futex_wait_own(const uint32_t *word, uint32_t expected);
void sync_futex_wake_own(const uint32_t *word);

// Has the processor fetch the bytes from `start` on into its caches, without waiting. Any address will do: nothing is read.
static inline void sync_prefetch_range(const void *start, uint64_t count) {
  const uint64_t line = 64;
  uint64_t first = (uint64_t)start & ~(line - 1);
  for (uint64_t next = first; next < (uint64_t)start + count; next += line) __builtin_prefetch((const void *)next);
}

// pthread_setcancelstate(3): from here on the calling thread is not cancelled. Returns what `sync_restore_cancelling` takes.
int sync_disable_cancelling(void);
void sync_restore_cancelling(int state);

// `hook` is called at the end of each thread that has called `sync_watch_thread_end`, by that thread.
void sync_on_thread_end(void (*hook)(void));
extern _Thread_local unsigned char sync_thread_end_is_watched;
void sync_begin_watching_thread_end(void);
static inline void sync_watch_thread_end(void) {
  if (__builtin_expect(!sync_thread_end_is_watched, 0)) sync_begin_watching_thread_end();
}

// The arguments of main, as the C library passes them to constructors: there without /proc, too. 0 and NULL where it does not.
int sync_argument_count(void);
const char *sync_argument(int index);

// A word of the calling thread's own, null at first. Swift has no variables of a thread.
void *sync_thread_cell(void);

// Sets it; `drop`, the same for all threads, gets it when the thread ends.
void sync_set_thread_cell(void *value, void (*drop)(void *));

// explicit_bzero(3) is hidden behind _GNU_SOURCE: zeros that no compiler leaves out.
void sync_zero(void *start, uint64_t count);
