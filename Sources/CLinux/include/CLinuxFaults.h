// A page of a mapped file that the kernel cannot give: the file was cut short, the disk failed, or there is no space for a
// page that was never allocated. The kernel says so by SIGBUS, in the middle of an ordinary load or store.
#pragma once

#include <stdint.h>

// One watched mapping. Slots are never given back to the allocator, so a handler may look at any at any time.
struct sync_watch;

// What was met in a mapping, as bits.
enum {
  SYNC_FAULT_TRUNCATED = 1,  // the file ends before the page
  SYNC_FAULT_REFUSED = 2,    // the page belongs to the file, but was not to be had
};

// Watches `count` bytes at `base`, which map `fd` from its beginning, from now on; `fd` must stay open as long. Installs
// the handler at the first call. NULL if there is no memory for it: then nothing is watched.
struct sync_watch *sync_watch(void *base, uint64_t count, int fd, uint64_t offset, int writable);

// Installs the handler in front of the one that stands now, unless that is it.
void sync_install_fault_handler(void);

// Ends watching. To be called before the memory is unmapped, while nobody uses it any more.
void sync_unwatch(struct sync_watch *watch);

// What was met in the mapping so far.
unsigned sync_watch_faults(const struct sync_watch *watch);

// How many faults were met in all mappings of this process. Read after every append and every read, so in place.
extern unsigned sync_fault_count;

static inline unsigned sync_any_fault(void) {
  // The handler of this thread runs between two of its instructions: only the compiler could put them out of order. That of another
  // thread counts before it puts zeros in place: a processor that loads out of order (ARM) must not load the count before it has
  // loaded what may be those zeros.
  __atomic_signal_fence(__ATOMIC_SEQ_CST);
  __atomic_thread_fence(__ATOMIC_ACQUIRE);
  return __atomic_load_n(&sync_fault_count, __ATOMIC_RELAXED);
}

// If there is a limit on the sizes of files (RLIMIT_FSIZE) and nobody has asked for SIGXFSZ, has it ignored: a write above
// the limit is then an error of that call (EFBIG), not the death of the process.
void sync_survive_file_limit(void);
