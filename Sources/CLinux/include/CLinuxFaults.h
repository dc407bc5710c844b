// Pages of a mapped file that the kernel cannot provide: the file was truncated, the disk failed, or there is
// no space for a page that was never allocated. The kernel reports that by SIGBUS, in the middle of an
// ordinary load or store.
#pragma once

#include <stdint.h>

// One watched mapping. Slots are never freed, so a handler may read any at any time.
struct sync_watch;

// Faults of a mapping, as bits.
enum {
  SYNC_FAULT_TRUNCATED = 1,  // the file ends before the page
  SYNC_FAULT_REFUSED = 2,    // the page belongs to the file, but is unavailable
};

// Watches `count` bytes at `base`, which map `fd` from `offset` on; `fd` must stay open as long. Installs the
// handler at the first call. NULL if out of memory: then nothing is watched.
struct sync_watch *sync_watch(void *base, uint64_t count, int fd, uint64_t offset, int writable);

// Installs the handler before the current one, unless it is already installed.
void sync_install_fault_handler(void);

// Ends watching. To be called before the memory is unmapped, when it is no longer used.
void sync_unwatch(struct sync_watch *watch);

// The faults raised in the mapping so far.
unsigned sync_watch_faults(const struct sync_watch *watch);

// Number of faults in all mappings of this process. Inline, because it is read after every append and every
// read.
extern unsigned sync_fault_count;

static inline unsigned sync_any_fault(void) {
  // This thread's handler runs between two of its instructions: only the compiler could reorder them. A
  // handler on another thread counts before it maps the zeros: a processor that reorders loads (ARM) must not
  // load the count before it has loaded what may be those zeros.
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return __atomic_load_n(&sync_fault_count, __ATOMIC_RELAXED);
}

// If there is a limit on file sizes (RLIMIT_FSIZE) and SIGXFSZ has its default action, ignores the signal: a
// write above the limit is then an error of that call (EFBIG) instead of the death of the process.
void sync_survive_file_limit(void);
