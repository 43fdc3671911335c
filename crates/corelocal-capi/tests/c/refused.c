/* Starts a program to which the kernel refuses calls, as a seccomp filter of a container does:
 *
 *     refused rseq,membarrier PROGRAM ARGUMENT...
 *
 * Each of the calls fails with EPERM. Exits with 77 where no filter can be set. */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <errno.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#ifndef SYS_rseq
#define SYS_rseq 334
#endif
#ifndef SYS_futex_waitv
#define SYS_futex_waitv 449
#endif

static const struct call { const char *name; unsigned number; } calls[] = {
    {"rseq", SYS_rseq},
    {"membarrier", SYS_membarrier},
    {"getcpu", SYS_getcpu},
    {"memfd_create", SYS_memfd_create},
    {"futex_waitv", SYS_futex_waitv},
};

static unsigned number_of(const char *name)
{
    for (size_t i = 0; i < sizeof calls / sizeof *calls; i++)
        if (strcmp(calls[i].name, name) == 0)
            return calls[i].number;
    fprintf(stderr, "refused: no call %s\n", name);
    exit(2);
}

int main(int count, char **words)
{
    struct sock_filter filter[32];
    unsigned short length = 0;
    if (count < 3)
        return 2;
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr));
    for (char *name = strtok(words[1], ","); name && length < 28; name = strtok(NULL, ",")) {
        filter[length++] = (struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, number_of(name), 0, 1);
        filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM);
    }
    filter[length++] = (struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW);
    const struct sock_fprog program = {length, filter};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 || prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0)
        return 77;
    execv(words[2], words + 2);
    perror(words[2]);
    return 2;
}
