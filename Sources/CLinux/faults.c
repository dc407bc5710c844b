// SIGBUS handler. A fault in a watched mapping gets a page of zeros, which no record checksum accepts, and
// marks the mapping; every other fault goes to the previous handler.
//
// No jump out of the handler: it would unwind through Swift frames. The access is retried, and reads zeros.
#define _GNU_SOURCE
#include "CLinuxFaults.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

struct sync_watch {
  // Odd while the fields change: a handler on another thread may be reading them.
  _Atomic(unsigned) version;
  _Atomic(int) taken;
  _Atomic(uintptr_t) base;
  _Atomic(uintptr_t) count;
  _Atomic(int) fd;
  // Offset of the mapping in the file.
  _Atomic(uint64_t) offset;
  _Atomic(int) writable;
  _Atomic(unsigned) faults;
  _Atomic(unsigned) pages;
};

enum { SLOTS = 128 };

struct block {
  struct sync_watch slots[SLOTS];
  _Atomic(struct block *) next;
};

unsigned sync_fault_count;
static struct block first;
static struct sigaction before;
static pthread_once_t installed = PTHREAD_ONCE_INIT;
static uintptr_t page_bytes;

// Each replaced page splits a mapping, and the kernel allows some 65,000 pieces: after SINGLE_PAGES, larger
// pieces are replaced. The hidden bytes are still in the file.
enum { SINGLE_PAGES = 1024, LARGER = 256 };

// Reads base and count of a slot. 0 if it watches nothing or is being changed.
static int read_slot(struct sync_watch *slot, uintptr_t *base, uintptr_t *count) {
  unsigned version = atomic_load_explicit(&slot->version, memory_order_acquire);
  if (version & 1) return 0;
  *base = atomic_load_explicit(&slot->base, memory_order_relaxed);
  *count = atomic_load_explicit(&slot->count, memory_order_relaxed);
  atomic_thread_fence(memory_order_acquire);
  // The slot of a mapping in use does not change; one that changes is not the one in question.
  return *base != 0 && version == atomic_load_explicit(&slot->version, memory_order_relaxed);
}

// Replaces the page at `address` with zeros. 0 if it lies in no watched mapping, or cannot be replaced.
static int replace_page(uintptr_t address) {
  for (struct block *block = &first; block; block = atomic_load_explicit(&block->next, memory_order_acquire)) {
    for (int index = 0; index < SLOTS; index++) {
      struct sync_watch *slot = &block->slots[index];
      uintptr_t base, count;
      if (!read_slot(slot, &base, &count) || address < base || address - base >= count) continue;
      uintptr_t start = address & ~(page_bytes - 1);
      uintptr_t end = start + page_bytes;
      uintptr_t last = (base + count + page_bytes - 1) & ~(page_bytes - 1);
      unsigned kind = SYNC_FAULT_REFUSED;
      struct stat status;
      if (fstat(slot->fd, &status) == 0 && (uint64_t)status.st_size <= slot->offset + (start - base)) {
        // Everything after it is gone, too.
        kind = SYNC_FAULT_TRUNCATED;
        end = last;
      } else if (atomic_fetch_add(&slot->pages, 1) >= SINGLE_PAGES) {
        end = start + LARGER * page_bytes;
        if (end > last) end = last;
      }
      // Mark first: a thread that sees the zeros must find the mark.
      atomic_fetch_or(&slot->faults, kind);
      __atomic_fetch_add(&sync_fault_count, 1, __ATOMIC_SEQ_CST);
      int protection = slot->writable ? PROT_READ | PROT_WRITE : PROT_READ;
      return mmap((void *)start, end - start, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE,
                  -1, 0) != MAP_FAILED;
    }
  }
  return 0;
}

static void handle(int number, siginfo_t *info, void *context) {
  int error = errno;
  // A positive code is an access fault; otherwise a process sent the signal.
  if (info->si_code > 0 && replace_page((uintptr_t)info->si_addr)) {
    errno = error;
    return;
  }
  errno = error;
  if (before.sa_flags & SA_SIGINFO) {
    before.sa_sigaction(number, info, context);
  } else if (before.sa_handler == SIG_IGN && info->si_code <= 0) {
    return;
  } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
    before.sa_handler(number);
  } else {
    // As without a handler: an access is retried and ends the process, a sent signal is raised again.
    struct sigaction standard = {.sa_handler = SIG_DFL};
    sigaction(SIGBUS, &standard, NULL);
    if (info->si_code <= 0) raise(number);
  }
}

void sync_install_fault_handler(void) {
  page_bytes = (uintptr_t)sysconf(_SC_PAGESIZE);
  struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
  sigemptyset(&action.sa_mask);
  // Read first: a fault may occur as soon as the handler is installed.
  struct sigaction present;
  sigaction(SIGBUS, NULL, &present);
  if ((present.sa_flags & SA_SIGINFO) && present.sa_sigaction == handle) return;
  before = present;
  sigaction(SIGBUS, &action, NULL);
}

static struct sync_watch *take_slot(void) {
  struct block *block = &first;
  while (1) {
    for (int index = 0; index < SLOTS; index++) {
      int expected = 0;
      if (atomic_load_explicit(&block->slots[index].taken, memory_order_relaxed) == 0 &&
          atomic_compare_exchange_strong(&block->slots[index].taken, &expected, 1))
        return &block->slots[index];
    }
    struct block *next = atomic_load(&block->next);
    if (!next) {
      struct block *fresh = calloc(1, sizeof *fresh);
      if (!fresh) return NULL;
      if (atomic_compare_exchange_strong(&block->next, &next, fresh))
        next = fresh;
      else
        free(fresh);
    }
    block = next;
  }
}

struct sync_watch *sync_watch(void *base, uint64_t count, int fd, uint64_t offset, int writable) {
  pthread_once(&installed, sync_install_fault_handler);
  struct sync_watch *slot = take_slot();
  if (!slot) return NULL;
  atomic_fetch_add(&slot->version, 1);
  atomic_store(&slot->fd, fd);
  atomic_store(&slot->offset, offset);
  atomic_store(&slot->writable, writable);
  atomic_store(&slot->faults, 0);
  atomic_store(&slot->pages, 0);
  atomic_store(&slot->count, (uintptr_t)count);
  atomic_store(&slot->base, (uintptr_t)base);
  atomic_fetch_add(&slot->version, 1);
  return slot;
}

void sync_unwatch(struct sync_watch *watch) {
  atomic_fetch_add(&watch->version, 1);
  atomic_store(&watch->base, 0);
  atomic_fetch_add(&watch->version, 1);
  atomic_store(&watch->taken, 0);
}

unsigned sync_watch_faults(const struct sync_watch *watch) {
  return atomic_load(&((struct sync_watch *)watch)->faults);
}

void sync_survive_file_limit(void) {
  struct rlimit limit;
  struct sigaction action;
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return;
  if (sigaction(SIGXFSZ, NULL, &action) != 0) return;
  if (!(action.sa_flags & SA_SIGINFO) && action.sa_handler == SIG_DFL) {
    action = (struct sigaction){.sa_handler = SIG_IGN};
    sigaction(SIGXFSZ, &action, NULL);
  }
}
