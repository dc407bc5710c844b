// Runs the C shims on the processor that this is compiled for: `make arm` does so for the host, and for
// aarch64 under an emulator. Results are compared with those of the simplest equivalent code.
#define _GNU_SOURCE
#include "CLinux.h"
#include "CLinuxFaults.h"
#include "CLinuxFiles.h"
#include "CLinuxLine.h"

#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define CHECK(condition)                                                     \
  do {                                                                       \
    if (!(condition)) {                                                      \
      fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                               \
    }                                                                        \
  } while (0)

static uint64_t next_random(uint64_t *state) {
  uint64_t z = (*state += 0x9E3779B97F4A7C15u);
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

static void check_lines(void) {
  uint64_t state = 1;
  _Alignas(64) uint64_t words[8];
  for (int round = 0; round < 200000; round++) {
    // Few tags, so that some words have the tag that is searched for.
    uint16_t tag = (uint16_t)(next_random(&state) & 7);
    struct sync_line expected = {0, 0, 0};
    for (int n = 0; n < 8; n++) {
      uint64_t tagged = next_random(&state) & 7;
      words[n] = (next_random(&state) >> 16) | tagged << 48;
      expected.fold ^= words[n];
      if (tagged == tag) expected.matches |= 8u << (4 * n);
    }
    expected.last = words[7];
    struct sync_line found = sync_look_at_line(words, tag);
    CHECK(found.fold == expected.fold && found.last == expected.last && found.matches == expected.matches);
  }
}

static void check_zeros(void) {
  uint64_t state = 2;
  unsigned char bytes[4096 + 64];
  for (int round = 0; round < 20000; round++) {
    memset(bytes, 0, sizeof bytes);
    uint64_t start = next_random(&state) % 64, count = next_random(&state) % 4096;
    int64_t expected = -1;
    if (count > 0 && round % 4 != 0) {
      expected = (int64_t)(next_random(&state) % count);
      bytes[start + (uint64_t)expected] = 1;
    }
    // Bytes outside the range must not count.
    if (start > 0) bytes[start - 1] = 1;
    bytes[start + count] = 1;
    CHECK(sync_last_nonzero(bytes + start, count) == expected);
  }
}

// A page of a file that was truncated while mapped: reads return zeros, and the fault is recorded.
static void check_faults(const char *path) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0600);
  CHECK(fd >= 0 && sync_allocate(fd, 0, 4 * page) == 0);
  unsigned char *start = mmap(NULL, 4 * page, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  CHECK(start != MAP_FAILED);
  memset(start, 7, 4 * page);
  struct sync_watch *watch = sync_watch(start, 4 * page, fd, 0, 1);
  CHECK(watch != NULL && sync_any_fault() == 0);
  CHECK(ftruncate(fd, (off_t)page) == 0);
  CHECK(start[0] == 7 && sync_any_fault() == 0);
  CHECK(start[2 * page] == 0 && sync_any_fault() == 1);
  CHECK(sync_watch_faults(watch) == SYNC_FAULT_TRUNCATED);
  sync_unwatch(watch);
  munmap(start, 4 * page);
  close(fd);
}

static void check_files(const char *path) {
  int fd = open(path, O_RDWR | O_CREAT | O_TRUNC, 0640);
  struct sync_file_status status;
  uint64_t number = 0, again = 0;
  CHECK(fd >= 0 && write(fd, "12345", 5) == 5 && sync_file_status(fd, &status) == 0);
  CHECK(status.size == 5 && status.links == 1 && S_ISREG(status.mode) && status.inode != 0);
  CHECK(sync_file_system_number(fd, &number) == 0 && sync_file_system_number(fd, &again) == 0);
  CHECK(number == again && number != 0);
  for (int round = 0; round < 1000; round++) sync_pause();
  close(fd);
  CHECK(unlink(path) == 0);
}

int main(int count, char **words) {
  CHECK(count == 2);
  check_lines();
  check_zeros();
  check_faults(words[1]);
  check_files(words[1]);
  puts("the C shims give what they should");
  return 0;
}
