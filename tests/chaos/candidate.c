/* A candidate of the chaos that is a command: candidate NUMBER WAY NS OP CLAIMED

   First it bears witness: it looks up which lock file its parent holds, locks a file of the same name among the
   witnesses, and keeps that locked. The lock is that of all it forks, too, so the next candidate on this device can
   have it only if nothing of this one is left. */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

static const char *directory;

static void note(const char *kind, const char *what, const char *device, const char *number) {
    char path[PATH_MAX], line[512];
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    snprintf(path, sizeof path, "%s/log", directory);
    int length = snprintf(line, sizeof line, "%s %s %s %s %s %d %.6f\n", kind, getenv("CHAOS_LIFE"), what, device,
                          number, (int)getpid(), (double)now.tv_sec + (double)now.tv_nsec / 1e9);
    int file = open(path, O_WRONLY | O_APPEND | O_CREAT | O_CLOEXEC, 0666);
    if (file < 0 || write(file, line, (size_t)length) != length)
        _exit(99);
    close(file);
}

/* Whether the descriptor `name` of process `pid` holds a lock. */
static int locked(int pid, const char *name) {
    char path[PATH_MAX], text[4096];
    snprintf(path, sizeof path, "/proc/%d/fdinfo/%s", pid, name);
    int file = open(path, O_RDONLY | O_CLOEXEC);
    if (file < 0)
        return 0;
    ssize_t length = read(file, text, sizeof text - 1);
    close(file);
    text[length > 0 ? length : 0] = '\0';
    return strstr(text, "FLOCK") != NULL;
}

/* The process that locked a file. */
static const char *holder(int file) {
    static char found[32] = "nobody";
    char line[256], kind[16], pid[32];
    unsigned long inode;
    struct stat about;
    fstat(file, &about);
    FILE *locks = fopen("/proc/locks", "re");
    while (locks != NULL && fgets(line, sizeof line, locks) != NULL)
        if (sscanf(line, "%*s %15s %*s %*s %31s %*x:%*x:%lu", kind, pid, &inode) == 3 && inode == about.st_ino)
            memcpy(found, pid, sizeof found);
    if (locks != NULL)
        fclose(locks);
    return found;
}

static void bear_witness(const char *number) {
    char path[PATH_MAX], target[PATH_MAX], leases[PATH_MAX], witness[3 * PATH_MAX];
    int pid = getppid(), found = 0;
    snprintf(path, sizeof path, "/proc/%d/fd", pid);
    int length = snprintf(leases, sizeof leases, "%s/", getenv("OSTINATO_LEASE_DIR"));
    DIR *files = opendir(path);
    for (struct dirent *each; files != NULL && (each = readdir(files)) != NULL;) {
        ssize_t size = readlinkat(dirfd(files), each->d_name, target, sizeof target - 1);
        target[size > 0 ? size : 0] = '\0';
        if (strncmp(target, leases, (size_t)length) != 0 || !locked(pid, each->d_name))
            continue;
        const char *device = target + length;
        found++;
        snprintf(witness, sizeof witness, "%s/witnesses/%s", directory, device);
        int file = open(witness, O_RDWR | O_CREAT, 0666); /* stays open, here and in all that is forked */
        note("enter", "command", device, number);
        if (flock(file, LOCK_EX | LOCK_NB) != 0)
            note("overlap", holder(file), device, number);
    }
    if (files != NULL)
        closedir(files);
    if (!found) {
        snprintf(path, sizeof path, "%d", pid);
        note("unleased", getppid() == pid ? path : "orphan", files == NULL ? "gone" : "there", number);
    }
}

static void leave_behind(const char *number, int daemon) {
    if (fork() != 0)
        return;
    if (daemon) {
        setsid();
        if (fork() != 0)
            _exit(0);
        int null = open("/dev/null", O_RDWR);
        for (int file = 0; file < 3; file++)
            dup2(null, file);
    }
    signal(SIGTERM, SIG_IGN);
    signal(SIGHUP, SIG_IGN);
    note("left", "command", "-", number);
    for (;;)
        pause();
}

static void report(const char *text) {
    const char *file = getenv("OSTINATO_REPORT_FD");
    if (write(atoi(file), text, strlen(text)) < 0)
        _exit(98);
}

int main(int argc, char **argv) {
    if (argc != 6)
        return 97;
    const char *number = argv[1], *way = argv[2], *op = argv[4];
    double ns = atof(argv[3]), claimed = atof(argv[5]);
    char text[1024];
    directory = getenv("CHAOS_DIR");
    bear_witness(number);

#define WAY(name) (strcmp(way, name) == 0)
#define PRINT_TIME(ms) (printf("OP:%s,TIME:%.9g,WS:0\n", op, ms), fflush(stdout))
    if (WAY("line")) {
        PRINT_TIME(ns / 1e6);
    } else if (WAY("json-lines")) {
        snprintf(text, sizeof text, "{\"v\":1,\"type\":\"start\",\"op\":\"%s\"}\n", op);
        report(text);
        usleep(5000);
        snprintf(text, sizeof text, "{\"v\":1,\"type\":\"sample\",\"op\":\"%s\",\"ns\":[%.9g,%.9g,%.9g]}\n", op, ns, ns,
                 ns);
        report(text);
        snprintf(text, sizeof text, "{\"v\":1,\"type\":\"result\",\"op\":\"%s\",\"status\":\"ok\"}\n", op);
        report(text);
    } else if (WAY("child") || WAY("daemon") || WAY("many")) {
        for (int child = 0; child < (WAY("many") ? 5 : 1); child++)
            leave_behind(number, WAY("daemon") || child % 2);
        PRINT_TIME(ns / 1e6);
    } else if (WAY("segv") || WAY("abort") || WAY("kill")) {
        PRINT_TIME(claimed / 1e6);
        if (WAY("abort"))
            abort();
        if (WAY("kill"))
            kill(getpid(), SIGKILL);
        *(volatile int *)8 = 0;
    } else if (WAY("exit")) {
        PRINT_TIME(claimed / 1e6);
        return 3;
    } else if (WAY("sleep") || WAY("stop") || WAY("deaf") || WAY("spin")) {
        PRINT_TIME(claimed / 1e6);
        if (WAY("stop"))
            kill(getpid(), SIGSTOP);
        for (int each = 1; WAY("deaf") && each < NSIG; each++)
            signal(each, SIG_IGN);
        for (;;)
            if (!WAY("spin"))
                pause();
    } else if (WAY("bytes")) {
        for (int byte = 0; byte < 1 << 16; byte++)
            putchar((byte * 7919 >> 3) & 255);
    } else if (WAY("nan")) {
        PRINT_TIME((double)NAN);
    } else if (WAY("negative")) {
        PRINT_TIME(-claimed / 1e6);
    } else if (WAY("zero")) {
        PRINT_TIME(0.0);
    } else if (WAY("json")) {
        report("{\"v\":1,\"type\":\"result\",\"op\":\n[1,2\n{{{{\n\"\\ud800\n");
    } else if (WAY("flood")) {
        for (int line = 0; line < 1 << 17; line++)
            fputs("yes\n", stdout);
    } else if (!WAY("nothing")) {
        return 96;
    }
    return 0;
}
