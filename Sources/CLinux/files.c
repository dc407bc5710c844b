#define _GNU_SOURCE
#include "CLinuxFiles.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <linux/fs.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <stdio.h>
#include <string.h>
#include <sys/file.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

int sync_is_refused(int code) {
  return code == ENOSYS || code == EPERM || code == EINVAL || code == EOPNOTSUPP;
}

// O_NOATIME: without it every mapping dirties the inode. The kernel refuses the flag (EPERM) to a process
// that does not own the file.
int sync_open(int directory, const char *path, int flags, unsigned mode) {
  int fd = openat(directory, path, flags | O_CLOEXEC | O_NOATIME, mode);
  return fd < 0 && errno == EPERM ? openat(directory, path, flags | O_CLOEXEC, mode) : fd;
}

static int open_beneath(int directory, const char *path, int flags, unsigned mode) {
  struct open_how how = {
    .flags = (uint64_t)(unsigned)flags | O_CLOEXEC,
    .mode = (flags & O_CREAT) ? mode : 0,
    .resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS,
  };
  return (int)syscall(SYS_openat2, directory, path, &how, sizeof how);
}

static void close_keeping_errno(int fd) {
  int code = errno;
  close(fd);
  errno = code;
}

// Opens each path component relative to the previous one, so that a concurrent rename or symbolic link cannot
// escape `directory`.
static int walk_beneath(int directory, const char *path, int flags, unsigned mode) {
  if (path[0] == '/') {
    errno = EXDEV;
    return -1;
  }
  int held = -1;
  while (1) {
    while (*path == '/') path++;
    const char *end = strchrnul(path, '/');
    char name[NAME_MAX + 1];
    size_t count = (size_t)(end - path);
    int is_last = end[strspn(end, "/")] == 0;
    int here = held < 0 ? directory : held;
    int fd = -1;
    if (count > NAME_MAX) {
      errno = ENAMETOOLONG;
    } else if (count == 2 && path[0] == '.' && path[1] == '.') {
      errno = EXDEV;
    } else {
      memcpy(name, count == 0 ? "." : path, count == 0 ? 1 : count);
      name[count == 0 ? 1 : count] = 0;
      fd = is_last ? sync_open(here, name, flags | O_NOFOLLOW | (*end ? O_DIRECTORY : 0), mode)
                   : openat(here, name, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
    }
    if (held >= 0) close_keeping_errno(held);
    if (fd < 0 || is_last) return fd;
    held = fd;
    path = end;
  }
}

int sync_open_beneath(int directory, const char *path, int flags, unsigned mode) {
  int fd = open_beneath(directory, path, flags | O_NOATIME, mode);
  // EPERM: O_NOATIME on a file of another user, or a seccomp filter.
  if (fd < 0 && errno == EPERM) fd = open_beneath(directory, path, flags, mode);
  return fd < 0 && sync_is_refused(errno) ? walk_beneath(directory, path, flags, mode) : fd;
}

// The parent directory of `path`, opened for a lock; -1 on failure.
static int open_parent(int directory, const char *path) {
  char parent[PATH_MAX];
  const char *slash = strrchr(path, '/');
  size_t count = slash == NULL ? 0 : (size_t)(slash - path);
  if (count >= sizeof parent) return -1;
  memcpy(parent, path, count);
  parent[count] = 0;
  const char *name = slash == NULL ? "." : count == 0 ? "/" : parent;
  return openat(directory, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
}

static int rename_to_free_name(int directory, const char *path, int new_directory, const char *new_path) {
  struct stat found;
  // As renameat2: a missing source is an error even if the new name is taken.
  if (fstatat(directory, path, &found, AT_SYMLINK_NOFOLLOW) != 0) return -1;
  if (fstatat(new_directory, new_path, &found, AT_SYMLINK_NOFOLLOW) == 0) {
    errno = EEXIST;
    return -1;
  }
  if (errno != ENOENT) return -1;
  if (renameat(directory, path, new_directory, new_path) == 0) return 0;
  int code = errno;
  // A directory cannot replace a file or a non-empty directory.
  int has_come = (code == ENOTDIR || code == ENOTEMPTY || code == EEXIST || code == EISDIR)
                 && fstatat(new_directory, new_path, &found, AT_SYMLINK_NOFOLLOW) == 0;
  errno = has_come ? EEXIST : code;
  return -1;
}

int sync_rename_unless_present(int directory, const char *path, int new_directory, const char *new_path) {
  const unsigned no_replace = 1;  // RENAME_NOREPLACE
  if (syscall(SYS_renameat2, directory, path, new_directory, new_path, no_replace) == 0) return 0;
  if (!sync_is_refused(errno)) return -1;
  // Not every file system locks directories: then only the shortness of the interval between the two calls
  // protects.
  int parent = open_parent(new_directory, new_path);
  if (parent >= 0) {
    while (flock(parent, LOCK_EX) != 0 && errno == EINTR) {
    }
  }
  int result = rename_to_free_name(directory, path, new_directory, new_path);
  if (parent >= 0) close_keeping_errno(parent);
  return result;
}

int sync_rename_exchange(int directory, const char *path, int other_directory, const char *other) {
  const unsigned exchange = 2;  // RENAME_EXCHANGE
  return (int)syscall(SYS_renameat2, directory, path, other_directory, other, exchange);
}

// Disables copy-on-write for an empty file on btrfs (FS_NOCOW_FL). With copy-on-write, rewriting a page needs
// a new block, and a full disk returns ENOSPC although the file was allocated. Errors are ignored.
static void write_in_place(int fd) {
  struct statfs system;
  if (fstatfs(fd, &system) != 0 || system.f_type != BTRFS_SUPER_MAGIC) return;
  int flags = 0;
  if (ioctl(fd, FS_IOC_GETFLAGS, &flags) != 0) return;
  flags |= FS_NOCOW_FL;
  ioctl(fd, FS_IOC_SETFLAGS, &flags);
}

int sync_allocate(int fd, uint64_t offset, uint64_t count) {
  if (offset == 0) write_in_place(fd);
  return fallocate(fd, 0, (off_t)offset, (off_t)count);
}

int sync_file_status(int fd, struct sync_file_status *status) {
  const unsigned wanted =
    STATX_TYPE | STATX_MODE | STATX_NLINK | STATX_UID | STATX_INO | STATX_SIZE | STATX_BTIME;
  struct statx answer;
  if (statx(fd, "", AT_EMPTY_PATH, wanted, &answer) == 0) {
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
  if (!sync_is_refused(errno)) return -1;
  struct stat older;
  if (fstat(fd, &older) != 0) return -1;
  *status = (struct sync_file_status){
    .size = (uint64_t)older.st_size,
    .inode = older.st_ino,
    .mode = older.st_mode,
    .links = (uint32_t)older.st_nlink,
    .owner = older.st_uid,
  };
  return 0;
}

// The device as XFS, F2FS, FAT and others report it in f_fsid (the kernel's new_encode_dev).
static uint64_t encoded_device(dev_t device) {
  uint64_t major_number = major(device), minor_number = minor(device);
  return (minor_number & 0xff) | major_number << 8 | (minor_number & ~(uint64_t)0xff) << 12;
}

// FS_IOC_GETFSUUID of Linux 6.9, and XFS_IOC_FSGEOMETRY_V1, as defined in <linux/fs.h> and <xfs/xfs_fs.h>:
// older headers lack the first, and the second is not among the kernel's.
struct file_system_uuid {
  uint8_t length, bytes[16];
};
struct xfs_geometry {
  uint32_t before[8];
  uint64_t blocks[4];
  uint8_t uuid[16];
  uint32_t after[2];
  int32_t version;
  uint32_t rest[4];
};

// Folds a UUID into one number, as ext4 does for its f_fsid.
static uint64_t folded(const uint8_t uuid[16]) {
  uint64_t halves[2];
  memcpy(halves, uuid, sizeof halves);
  return halves[0] ^ halves[1];
}

int sync_file_system_number(int fd, uint64_t *number) {
  struct statfs system;
  struct stat file;
  if (fstatfs(fd, &system) != 0 || fstat(fd, &file) != 0) return -1;
  memcpy(number, &system.f_fsid, sizeof *number);
  if (*number != encoded_device(file.st_dev)) return 0;
  struct file_system_uuid uuid = {0};
  struct xfs_geometry geometry = {0};
  int saved = errno;
  if (ioctl(fd, _IOR(0x15, 0, struct file_system_uuid), &uuid) == 0 && uuid.length == sizeof uuid.bytes) {
    *number = folded(uuid.bytes);
  } else if (system.f_type == XFS_SUPER_MAGIC && ioctl(fd, _IOR('X', 100, struct xfs_geometry), &geometry) == 0) {
    *number = folded(geometry.uuid);
  } else {
    *number = 0;
  }
  if (*number == 0) *number = SYNC_NO_FILE_SYSTEM_NUMBER;
  errno = saved;
  return 0;
}

int sync_file_system_status(
  int directory, const char *path, uint64_t *free_bytes, uint64_t *type, int *is_read_only) {
  int fd = openat(directory, path, O_PATH | O_CLOEXEC);
  if (fd < 0) return -1;
  struct statfs answer;
  int result = fstatfs(fd, &answer);
  close_keeping_errno(fd);
  if (result != 0) return -1;
  *free_bytes = (uint64_t)answer.f_bavail * (uint64_t)answer.f_bsize;
  // The field is signed on some machines: the magic numbers have 32 bits.
  *type = (uint64_t)(uint32_t)answer.f_type;
  *is_read_only = (answer.f_flags & ST_RDONLY) != 0;
  return 0;
}

int sync_hold_directory(int directory, const char *path) {
  return openat(directory, path, O_PATH | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
}
