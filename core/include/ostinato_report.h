/* ostinato_report.h: how a profiler reports to Ostinato's tuner. C99 or C++11, POSIX; nothing to link.
 *
 * The tuner names a descriptor in OSTINATO_REPORT_FD, and reads one JSON object a line from it:
 *
 *     ost_report_start("gemm_128x64");           // before the op runs, so that a crash is known to be its own
 *     ost_report_sample("gemm_128x64", ns, 20);  // times of single calls in ns, as often as you like
 *     ost_report_result("gemm_128x64", "ok", OST_REPORT_NO_TIME, workspace, NULL);
 *
 * Each function returns 0 if the tuner was told, and -1 if there is none (nothing is written then) or writing failed.
 * A line is one write(2), so that threads and processes may report at once. */
#ifndef OSTINATO_REPORT_H
#define OSTINATO_REPORT_H

#include <errno.h>
#include <float.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#ifdef __cplusplus
extern "C" {
#endif

/* For `ns` of a result: samples were reported, or there is no time because the op failed. */
#define OST_REPORT_NO_TIME (-DBL_MAX)

/* What the functions below build a line in. */
typedef struct {
    char *text;
    size_t used;
    size_t size;
} ost_report_line;

/* Whether a tuner listens: its descriptor, or -1. */
static inline int ost_report_descriptor(void) {
    const char *text = getenv("OSTINATO_REPORT_FD");
    if (text == NULL || *text < '0' || *text > '9') {
        return -1;
    }
    char *end;
    const long number = strtol(text, &end, 10);
    return *end == '\0' && number <= 1L << 20 ? (int)number : -1;
}

static inline void ost_report_append(ost_report_line *line, const char *text, size_t length) {
    if (line->text == NULL) {
        return;
    }
    if (length >= line->size - line->used) {
        const size_t size = 2 * (line->used + length) + 256;
        char *grown = (char *)realloc(line->text, size);
        if (grown == NULL) {
            free(line->text);
            line->text = NULL;
            return;
        }
        line->text = grown;
        line->size = size;
    }
    memcpy(line->text + line->used, text, length);
    line->used += length;
}

static inline void ost_report_append_text(ost_report_line *line, const char *text) {
    ost_report_append(line, text, strlen(text));
}

/* A string as JSON has it; what comes after 32 KiB is left out. */
static inline void ost_report_append_string(ost_report_line *line, const char *text) {
    const char *const most = text + (1 << 15);
    ost_report_append(line, "\"", 1);
    for (; *text != '\0' && text != most; ++text) {
        const unsigned char byte = (unsigned char)*text;
        if (byte == '"' || byte == '\\') {
            ost_report_append(line, "\\", 1);
        }
        if (byte < 0x20) {
            char escape[8];
            snprintf(escape, sizeof escape, "\\u%04x", (unsigned)byte);
            ost_report_append(line, escape, 6);
        } else {
            ost_report_append(line, text, 1);
        }
    }
    ost_report_append(line, "\"", 1);
}

/* A number in full precision, with a point whatever the locale writes; JSON has no infinity, but 1e999 is read as one,
 * and no NaN, but null is no time either. */
static inline void ost_report_append_number(ost_report_line *line, double number) {
    char text[64];
    char out[64];
    size_t used = 0;
    snprintf(text, sizeof text, "%.17g", number);
    for (const char *at = text; *at != '\0'; ++at) {
        if (*at == 'n' || *at == 'N') { /* "nan", but of "inf" the 'i' comes first */
            ost_report_append_text(line, "null");
            return;
        }
        if (*at == 'i' || *at == 'I') {
            ost_report_append_text(line, text[0] == '-' ? "-1e999" : "1e999");
            return;
        }
        if (strchr("0123456789+-e", *at) != NULL) {
            out[used++] = *at;
        } else if (used == 0 || out[used - 1] != '.') { /* a locale's point may be several bytes */
            out[used++] = '.';
        }
    }
    ost_report_append(line, out, used);
}

static inline void ost_report_begin(ost_report_line *line, const char *type, const char *op) {
    line->size = 512;
    line->used = 0;
    line->text = (char *)malloc(line->size);
    ost_report_append_text(line, "{\"v\":1,\"type\":\"");
    ost_report_append_text(line, type);
    ost_report_append_text(line, "\",\"op\":");
    ost_report_append_string(line, op);
}

/* Writes the line, as one write(2) unless the system takes only a part of it, and frees it. */
static inline int ost_report_end(ost_report_line *line) {
    const int descriptor = ost_report_descriptor();
    ost_report_append_text(line, "}\n");
    if (line->text == NULL) {
        return -1;
    }
    size_t written = 0;
    while (written < line->used) {
        const ssize_t count = write(descriptor, line->text + written, line->used - written);
        if (count > 0) {
            written += (size_t)count;
        } else if (count == 0 || errno != EINTR) {
            break;
        }
    }
    const int result = written == line->used ? 0 : -1;
    free(line->text);
    return result;
}

/* Says that `op` starts. */
static inline int ost_report_start(const char *op) {
    ost_report_line line;
    if (ost_report_descriptor() < 0) {
        return -1;
    }
    ost_report_begin(&line, "start", op);
    return ost_report_end(&line);
}

/* Reports times of single calls in ns. */
static inline int ost_report_sample(const char *op, const double *ns, size_t count) {
    const size_t most = 128; /* of a line, so that it stays below what a pipe takes in one piece */
    if (ost_report_descriptor() < 0) {
        return -1;
    }
    for (size_t begin = 0; begin < count; begin += most) {
        ost_report_line line;
        ost_report_begin(&line, "sample", op);
        ost_report_append_text(&line, ",\"ns\":[");
        for (size_t index = begin; index < count && index < begin + most; ++index) {
            if (index > begin) {
                ost_report_append(&line, ",", 1);
            }
            ost_report_append_number(&line, ns[index]);
        }
        ost_report_append(&line, "]", 1);
        if (ost_report_end(&line) != 0) {
            return -1;
        }
    }
    return 0;
}

/* Says how `op` ended. `status` is "ok", or what went wrong: "invalid", "crash", "oom", "wrong_result". `ns` is the
 * time of one call, or OST_REPORT_NO_TIME; `workspace` the bytes that it needs; `message` may be NULL. */
static inline int ost_report_result(const char *op, const char *status, double ns, uint64_t workspace,
                                    const char *message) {
    ost_report_line line;
    char number[32];
    if (ost_report_descriptor() < 0) {
        return -1;
    }
    ost_report_begin(&line, "result", op);
    ost_report_append_text(&line, ",\"status\":");
    ost_report_append_string(&line, status);
    if (ns != OST_REPORT_NO_TIME) {
        ost_report_append_text(&line, ",\"ns\":");
        ost_report_append_number(&line, ns);
    }
    snprintf(number, sizeof number, "%llu", (unsigned long long)workspace);
    ost_report_append_text(&line, ",\"workspace\":");
    ost_report_append_text(&line, number);
    if (message != NULL) {
        ost_report_append_text(&line, ",\"message\":");
        ost_report_append_string(&line, message);
    }
    return ost_report_end(&line);
}

/* For runs without a tuner: prints the line that older tools read, which the tuner understands too. */
static inline void ost_report_print(const char *op, double ns, uint64_t workspace) {
    ost_report_line time = {(char *)malloc(64), 0, 64};
    ost_report_append_number(&time, ns / 1e6);
    if (time.text != NULL) {
        printf("OP:%s,TIME:%.*s,WS:%llu\n", op, (int)time.used, time.text, (unsigned long long)workspace);
        fflush(stdout);
    }
    free(time.text);
}

#ifdef __cplusplus
}
#endif

#endif /* OSTINATO_REPORT_H */
