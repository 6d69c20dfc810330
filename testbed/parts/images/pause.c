/* The process that holds a pod's namespaces: it waits for its end and reaps what is left to it. */
#include <signal.h>
#include <stddef.h>
#include <sys/wait.h>
#include <unistd.h>

static void leave(int signal) {
    (void)signal;
    _exit(0);
}

static void reap(int signal) {
    (void)signal;
    while (waitpid(-1, NULL, WNOHANG) > 0) {
    }
}

int main(void) {
    struct sigaction leaving = {.sa_handler = leave};
    struct sigaction reaping = {.sa_handler = reap, .sa_flags = SA_NOCLDSTOP};
    if (sigaction(SIGINT, &leaving, NULL) < 0 || sigaction(SIGTERM, &leaving, NULL) < 0 ||
        sigaction(SIGCHLD, &reaping, NULL) < 0) {
        return 1;
    }
    for (;;) {
        pause();
    }
}
