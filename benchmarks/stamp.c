/* A job that notes its own times: sleeps, then appends one record of 64 bytes to a file.
 *
 *   stamp FILE MICROSECONDS NUMBER
 *
 * The file is opened before the sleep and written with one write after it, so that as little as possible of the
 * job itself counts as the gap to the next one. The slot is the first of SLOT_NAMES that is set.
 */
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

struct record {
    uint64_t number, started_ns, ended_ns;
    char slot[40];
};

static const char *const SLOT_NAMES[] = {"BENCH_SLOT", "PARALLEL_JOBSLOT", "HQ_CPUS", "CUDA_VISIBLE_DEVICES"};

static uint64_t now_ns(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

int main(int argc, char **argv) {
    struct record record = {.started_ns = now_ns()};
    if (argc != 4)
        return 2;
    int file = open(argv[1], O_WRONLY | O_APPEND);
    if (file < 0)
        return 3;
    record.number = strtoull(argv[3], NULL, 10);
    for (size_t i = 0; i < sizeof SLOT_NAMES / sizeof *SLOT_NAMES; i++) {
        const char *slot = getenv(SLOT_NAMES[i]);
        if (slot && *slot) {
            strncpy(record.slot, slot, sizeof record.slot - 1);
            break;
        }
    }
    unsigned long long us = strtoull(argv[2], NULL, 10);
    struct timespec left = {.tv_sec = (time_t)(us / 1000000u), .tv_nsec = (long)(us % 1000000u) * 1000};
    while (us && nanosleep(&left, &left) != 0)
        ;
    record.ended_ns = now_ns();
    return write(file, &record, sizeof record) == (ssize_t)sizeof record ? 0 : 4;
}
