// Simulates a kernel with pages of 64 KiB; load it with LD_PRELOAD. Mappings begin at multiples of 64 KiB,
// other addresses and offsets are refused with EINVAL as by that kernel, lengths are rounded up, and sysconf
// returns the size. So code that assumes pages of 4 KiB fails, or loses the neighbouring bytes that such a
// kernel would unmap or discard with a page.
#define _GNU_SOURCE
#include <errno.h>
#include <stdint.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#define PAGE ((uintptr_t)65536)
#define UP(count) (((uintptr_t)(count) + PAGE - 1) & ~(PAGE - 1))

static int is_aligned(uintptr_t value) { return (value & (PAGE - 1)) == 0; }

static void *real_mmap(uintptr_t start, uintptr_t count, int protection, int flags, int fd, off_t offset) {
  return (void *)syscall(SYS_mmap, start, count, protection, flags, fd, offset);
}

void *mmap(void *start, size_t count, int protection, int flags, int fd, off_t offset) {
  if (!is_aligned((uintptr_t)offset) || ((flags & MAP_FIXED) && !is_aligned((uintptr_t)start))) {
    errno = EINVAL;
    return MAP_FAILED;
  }
  if (flags & MAP_FIXED) return real_mmap((uintptr_t)start, UP(count), protection, flags, fd, offset);
  // Reserves one page more than needed to align the start, and unmaps the rest.
  void *room = real_mmap(0, UP(count) + PAGE, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return MAP_FAILED;
  uintptr_t base = UP(room), end = base + UP(count), last = (uintptr_t)room + UP(count) + PAGE;
  if (base > (uintptr_t)room) syscall(SYS_munmap, room, base - (uintptr_t)room);
  if (last > end) syscall(SYS_munmap, end, last - end);
  void *result = real_mmap(base, UP(count), protection, flags | MAP_FIXED, fd, offset);
  if (result == MAP_FAILED) {
    int saved = errno;
    syscall(SYS_munmap, base, UP(count));
    errno = saved;
  }
  return result;
}

void *mmap64(void *start, size_t count, int protection, int flags, int fd, off64_t offset) {
  return mmap(start, count, protection, flags, fd, offset);
}

static int refused(void) {
  errno = EINVAL;
  return -1;
}

int munmap(void *start, size_t count) {
  if (!is_aligned((uintptr_t)start)) return refused();
  return (int)syscall(SYS_munmap, start, UP(count));
}

int madvise(void *start, size_t count, int advice) {
  if (!is_aligned((uintptr_t)start)) return refused();
  return (int)syscall(SYS_madvise, start, UP(count), advice);
}

int msync(void *start, size_t count, int flags) {
  if (!is_aligned((uintptr_t)start)) return refused();
  return (int)syscall(SYS_msync, start, UP(count), flags);
}

int getpagesize(void) { return (int)PAGE; }

extern long __sysconf(int name);

long sysconf(int name) { return name == _SC_PAGESIZE ? (long)PAGE : __sysconf(name); }
