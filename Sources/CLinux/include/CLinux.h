// What Swift cannot import from glibc: variadic functions, calls without a wrapper, and what _GNU_SOURCE hides.
#pragma once

#include <stdint.h>

#include "CLinuxFaults.h"
#include "CLinuxLine.h"
#include "CLinuxSockets.h"

// open(2) is variadic.
int sync_open(const char *path, int flags, unsigned mode);

// openat2(2) has no wrapper in glibc. The path can leave `directory` neither by "..", nor by a link.
int sync_open_beneath(int directory, const char *path, int flags, unsigned mode);

// fcntl(2) is variadic. A lock of the open file description on one byte: it goes with the last descriptor of it, also
// by death. `type` is F_RDLCK, F_WRLCK or F_UNLCK.
int sync_lock_byte(int fd, int type, int64_t offset, int wait);

// F_SET_RW_HINT: a mark that the kernel keeps with the inode in its memory, and writes to no disk. Nothing happens where it cannot.
void sync_mark(int fd);

// F_GET_RW_HINT: is it there? 0 also where the kernel does not tell.
int sync_is_marked(int fd);

// A duplicate of `fd` with a number above 2, closed on exec.
int sync_duplicate_above_standard(int fd);

// Reads and writes on `fd` return at once.
int sync_set_nonblocking(int fd);

// What statx(2) tells of an open file, but for its times: since Linux 6.13 a file whose times were asked for gets new ones
// at its next change, and a sync that has to write them, too, takes half as long again.
struct sync_file_status {
  uint64_t size, inode;
  // In nanoseconds since 1970, 0 if unknown.
  uint64_t birth;
  uint32_t mode, links, owner;
};
int sync_file_status(int fd, struct sync_file_status *status);

// fstatfs(2): the number of the file system of an open file.
int sync_file_system_number(int fd, uint64_t *number);

// statfs(2): bytes free for an ordinary user; the magic number of the file system's type; is it mounted for reading only?
int sync_file_system_status(const char *path, uint64_t *free_bytes, uint64_t *type, int *is_read_only);

// madvise(2) with MADV_POPULATE_WRITE: finds memory for the pages now. 0, or -1 where the kernel cannot.
int sync_populate(void *start, uint64_t count);

// Lets the processor fetch the cache line at `address`, which need not even be mapped.
static inline void sync_prefetch(const void *address) { __builtin_prefetch(address); }

// Tells the processor that it is waiting for another one.
static inline void sync_pause(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
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

// Does anybody sleep for a robust mutex? Its futex word says so in a bit that is part of the kernel's interface (robust
// futexes), not of the C library's.
int sync_mutex_is_awaited(const void *mutex);

// futex(2) has no wrapper in glibc. Sleeps as long as `word`, which processes may share, holds `expected` and nobody wakes it, and
// no longer than that.
void sync_futex_wait(const uint32_t *word, uint32_t expected, int milliseconds);
// Wakes all who sleep there, in all processes.
void sync_futex_wake(const uint32_t *word);
// The same among the threads of this process, and for as long as it takes.
void sync_futex_wait_own(const uint32_t *word, uint32_t expected);
void sync_futex_wake_own(const uint32_t *word);

// renameat2(2) with RENAME_NOREPLACE, both hidden behind _GNU_SOURCE: fails with EEXIST where rename(2) would replace.
int sync_rename_unless_present(const char *path, const char *new_path);

// The same with RENAME_EXCHANGE: both names change places at once.
int sync_rename_exchange(const char *path, const char *other);

// Has the processor fetch the bytes from `start` on into its caches, without waiting. Any address will do: nothing is read.
static inline void sync_prefetch_range(const void *start, uint64_t count) {
  const uint64_t line = 64;
  uint64_t first = (uint64_t)start & ~(line - 1);
  for (uint64_t next = first; next < (uint64_t)start + count; next += line) __builtin_prefetch((const void *)next);
}

// A word of the calling thread's own, null at first. Swift has no variables of a thread.
void *sync_thread_cell(void);

// Sets it; `drop`, the same for all threads, gets it when the thread ends.
void sync_set_thread_cell(void *value, void (*drop)(void *));

// explicit_bzero(3) is hidden behind _GNU_SOURCE: zeros that no compiler leaves out.
void sync_zero(void *start, uint64_t count);
