/* Reports what its arguments say, for the tests of the header. */
#include <locale.h>

#include "ostinato_report.h"

int main(int argc, char **argv) {
    int failed = 0;
    setlocale(LC_ALL, "");
    for (int at = 1; at + 1 < argc; at += 2) {
        const char *what = argv[at], *value = argv[at + 1];
        if (strcmp(what, "start") == 0) {
            failed |= ost_report_start(value);
        } else if (strcmp(what, "times") == 0) { /* so many samples: 0.1, 1.1, 2.1 */
            const size_t count = (size_t)strtoul(value, NULL, 10);
            double *ns = (double *)malloc((count + 1) * sizeof *ns);
            for (size_t index = 0; index < count; ++index) {
                ns[index] = (double)index + 0.1;
            }
            failed |= ost_report_sample("op", ns, count);
            free(ns);
        } else if (strcmp(what, "ok") == 0) {
            failed |= ost_report_result("op", "ok", strtod(value, NULL), 64, NULL);
        } else if (strcmp(what, "end") == 0) {
            failed |= ost_report_result("op", "ok", OST_REPORT_NO_TIME, UINT64_MAX >> 1, NULL);
        } else if (strcmp(what, "failed") == 0) {
            failed |= ost_report_result("op", "invalid", OST_REPORT_NO_TIME, 0, value);
        } else if (strcmp(what, "print") == 0) {
            ost_report_print("op", strtod(value, NULL), 8);
        }
    }
    return failed == 0 ? 0 : 1;
}
