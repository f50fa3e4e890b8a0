/* A preload library in which link() and flock() fail on demand.
 *
 *   gcc -O1 -Wall -shared -fPIC -o libfaults.so fake_faults.c
 *
 * $FAKE_FAULTS names a file with lines `CALL ERRNO`: while a line names a call, that call fails with the number.
 * Without the file everything works.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

static int fault(const char *call)
{
    const char *path = getenv("FAKE_FAULTS");
    FILE *file = path ? fopen(path, "re") : NULL;
    char name[32];
    int number, found = 0;

    if (!file)
        return 0;
    while (!found && fscanf(file, "%31s %d", name, &number) == 2)
        if (!strcmp(name, call))
            found = number;
    fclose(file);
    return found;
}

#define REAL(call) ((__typeof__(&call))dlsym(RTLD_NEXT, #call))

int link(const char *from, const char *to)
{
    int number = fault("link");
    return number ? (errno = number, -1) : REAL(link)(from, to);
}

int flock(int fd, int how)
{
    int number = fault("flock");
    return number ? (errno = number, -1) : REAL(flock)(fd, how);
}
