// What Swift cannot import from glibc: variadic functions, calls without a wrapper, and what _GNU_SOURCE hides.
#pragma once

#include <stdint.h>

#include "CLinuxSockets.h"

// open(2) is variadic.
int sync_open(const char *path, int flags, unsigned mode);

// openat2(2) has no wrapper in glibc. The path can leave `directory` neither by "..", nor by a link.
int sync_open_beneath(int directory, const char *path, int flags, unsigned mode);

// fcntl(2) is variadic. A lock of the open file description on one byte: it goes with the last descriptor of it, also
// by death. `type` is F_RDLCK, F_WRLCK or F_UNLCK.
int sync_lock_byte(int fd, int type, int64_t offset, int wait);

// A duplicate of `fd` with a number above 2, closed on exec.
int sync_duplicate_above_standard(int fd);

// Reads and writes on `fd` return at once.
int sync_set_nonblocking(int fd);

// statx(2), fstatfs(2): what stat(2) does not tell. Birth in nanoseconds since 1970, 0 if unknown.
int sync_birth_and_file_system(int fd, uint64_t *birth, uint64_t *file_system);

// statfs(2): bytes free for an ordinary user; the magic number of the file system's type.
int sync_free_bytes(const char *path, uint64_t *free_bytes, uint64_t *type);

// madvise(2) with MADV_POPULATE_WRITE: finds memory for the pages now. 0, or -1 where the kernel cannot.
int sync_populate(void *start, uint64_t count);

// syncfs(2) is hidden behind _GNU_SOURCE.
int sync_file_system(int fd);

// The offset of the last byte that is not zero; -1 if all are.
int64_t sync_last_nonzero(const void *start, uint64_t count);

// How often this process was forked since it first asked: a store opened before belongs to the parent.
unsigned sync_fork_generation(void);

// renameat2(2) with RENAME_NOREPLACE, both hidden behind _GNU_SOURCE: fails with EEXIST where rename(2) would replace.
int sync_rename_unless_present(const char *path, const char *new_path);

// A word of the calling thread's own, null at first. Swift has no variables of a thread.
void *sync_thread_cell(void);

// Sets it; `drop`, the same for all threads, gets it when the thread ends.
void sync_set_thread_cell(void *value, void (*drop)(void *));

// explicit_bzero(3) is hidden behind _GNU_SOURCE: zeros that no compiler leaves out.
void sync_zero(void *start, uint64_t count);
