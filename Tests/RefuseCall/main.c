// refuse-call CALL ERRNO PROGRAM WORD...: runs a program with one system call refused by a seccomp filter,
// which needs no privileges, as the sandbox of a container runtime or of a service manager does.
#include <errno.h>
#include <linux/audit.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#if defined(__x86_64__)
#define OWN_ARCHITECTURE AUDIT_ARCH_X86_64
#elif defined(__aarch64__)
#define OWN_ARCHITECTURE AUDIT_ARCH_AARCH64
#endif

// A call, or only its uses with one value of the second or third argument.
struct refused {
  const char *name;
  unsigned number;
  // Index of the argument that is compared, from 0; -1 for none.
  int argument;
  unsigned value;
};

static const struct refused calls[] = {
  {"none", ~0u, -1, 0},
  {"openat2", SYS_openat2, -1, 0},
  {"renameat2", SYS_renameat2, -1, 0},
  {"statx", SYS_statx, -1, 0},
  {"fallocate", SYS_fallocate, -1, 0},
  {"membarrier", SYS_membarrier, -1, 0},
  {"sync_file_range", SYS_sync_file_range, -1, 0},
  {"flock", SYS_flock, -1, 0},
  {"syncfs", SYS_syncfs, -1, 0},
  {"madvise", SYS_madvise, -1, 0},
  {"populate", SYS_madvise, 2, 23},
  {"write-hint", SYS_fcntl, 1, 1036},
  {"read-hint", SYS_fcntl, 1, 1035},
  {"accept4", SYS_accept4, -1, 0},
  {"getrandom", SYS_getrandom, -1, 0},
  {"rseq", SYS_rseq, -1, 0},
  {"clone3", SYS_clone3, -1, 0},
};

static const struct {
  const char *name;
  unsigned number;
} errors[] = {{"ENOSYS", ENOSYS}, {"EPERM", EPERM}, {"EINVAL", EINVAL}, {"EOPNOTSUPP", EOPNOTSUPP}};

static int refuse(const struct refused *call, unsigned code) {
  const unsigned where = call->argument < 0 ? offsetof(struct seccomp_data, nr)
                                            : offsetof(struct seccomp_data, args) + 8 * (unsigned)call->argument;
  struct sock_filter filter[] = {
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, arch)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, OWN_ARCHITECTURE, 0, 5),
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call->number, 0, 3),
    // The lower half of the argument (both supported processors are little-endian); the call number again if
    // no argument is compared.
    BPF_STMT(BPF_LD | BPF_W | BPF_ABS, where),
    BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, call->argument < 0 ? call->number : call->value, 0, 1),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | code),
    BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog program = {sizeof filter / sizeof *filter, filter};
  if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0) return -1;
  return prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program);
}

int main(int count, char **words) {
  if (count < 4) {
    fputs("refuse-call CALL ERRNO PROGRAM WORD...\n", stderr);
    return 125;
  }
  for (size_t call = 0; call < sizeof calls / sizeof *calls; call++) {
    if (strcmp(calls[call].name, words[1]) != 0) continue;
    for (size_t error = 0; error < sizeof errors / sizeof *errors; error++) {
      if (strcmp(errors[error].name, words[2]) != 0) continue;
      if (refuse(&calls[call], errors[error].number) != 0) {
        perror("seccomp");
        return 126;
      }
      execv(words[3], words + 3);
      perror(words[3]);
      return 127;
    }
  }
  fputs("refuse-call: no such call or error\n", stderr);
  return 125;
}
