/* The wall clock of one process, set off by as many seconds as the file says that WALL_CLOCK names. */
#define _GNU_SOURCE
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

int clock_gettime(clockid_t clock, struct timespec *time) {
    int result = syscall(SYS_clock_gettime, clock, time);
    const char *path = getenv("WALL_CLOCK");
    if (result != 0 || clock != CLOCK_REALTIME || path == NULL) return result;
    FILE *file = fopen(path, "r");
    long seconds;
    if (file == NULL || fscanf(file, "%ld", &seconds) != 1) abort();
    fclose(file);
    time->tv_sec += seconds;
    return 0;
}
