// File calls that are newer than POSIX, or that a sandbox may refuse. Each has a fallback of older calls with
// the same guarantees, or a comment that says what is lost.
#pragma once

#include <stdint.h>

// Whether this error number means that a call is unavailable here, rather than that it failed. A kernel that
// lacks it returns ENOSYS, a seccomp filter ENOSYS or EPERM, a file system that lacks it EINVAL or
// EOPNOTSUPP. A fallback repeats every check of the call itself, so one tried after a genuine EPERM or EINVAL
// fails again.
int sync_is_refused(int code);

// openat(2) is variadic. O_CLOEXEC is added.
int sync_open(int directory, const char *path, int flags, unsigned mode);

// openat2(2) has no wrapper in glibc. The path cannot escape `directory` through ".." or a symbolic link.
// Where openat2 is refused the path is opened component by component; a symbolic link or ".." is an error.
int sync_open_beneath(int directory, const char *path, int flags, unsigned mode);

// renameat2(2) with RENAME_NOREPLACE: fails with EEXIST where rename(2) would replace. Without it the target
// is looked up first, while an flock(2) on its directory keeps every other caller of this fallback out;
// another program that creates the name in between loses it if it is a file or an empty directory.
int sync_rename_unless_present(int directory, const char *path, int new_directory, const char *new_path);

// renameat2(2) with RENAME_EXCHANGE: exchanges both names atomically. No fallback here: if
// `sync_is_refused(errno)` the caller has to do it in steps.
int sync_rename_exchange(int directory, const char *path, int other_directory, const char *other);

// fallocate(2), which extends the file: -1 and errno, unlike posix_fallocate(3), which returns the error,
// does not say EINTR by -1, and writes one byte per block where the file system has no such call. No fallback
// here, as above. On btrfs, allocating an empty file also disables copy-on-write.
int sync_allocate(int fd, uint64_t offset, uint64_t count);

// statx(2) of an open file without its times: since Linux 6.13 a file whose times were queried gets new ones
// at its next change, and a sync that has to write them, too, takes half as long again. Without statx:
// fstat(2), and no birth time.
struct sync_file_status {
  uint64_t size, inode;
  // In nanoseconds since 1970, 0 if unknown.
  uint64_t birth;
  uint32_t mode, links, owner;
};
int sync_file_status(int fd, struct sync_file_status *status);

// A number of an open file's file system that stays the same across mounts: f_fsid, unless that is the device
// number, which depends on the order in which devices are found; then the file system's UUID, or else
// SYNC_NO_FILE_SYSTEM_NUMBER.
#define SYNC_NO_FILE_SYSTEM_NUMBER 1
int sync_file_system_number(int fd, uint64_t *number);

// fstatfs(2) of the entry at `path`: bytes free for an ordinary user, the magic number of the file system's
// type, and whether it is mounted read-only.
int sync_file_system_status(
  int directory, const char *path, uint64_t *free_bytes, uint64_t *type, int *is_read_only);

// Opens a directory to reach others through it, without the right to read it. A link in the last component is
// not followed.
int sync_hold_directory(int directory, const char *path);
