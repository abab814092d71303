/* A CUDA driver without a device: work takes the time that it says, one piece after the other on the default stream, or
 * beside it. Everything is finished by the host's clock. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CLOCK_NS 1000000000LL
#define L2_BYTES (4 << 20)

static int64_t default_end, other_end; /* when the streams are idle */
static int error;
static int64_t written; /* bytes, by memset */
static int context;
static int current;

static int64_t now(void) {
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return time.tv_sec * CLOCK_NS + time.tv_nsec;
}

static int64_t later(int64_t a, int64_t b) { return a > b ? a : b; }

static int wait_until(int64_t end) {
    while (now() < end) {
    }
    return error;
}

/* What candidates and tests call. */
void fake_launch(int64_t ns) { default_end = later(default_end, now()) + ns; }
void fake_launch_beside(int64_t ns) { other_end = later(other_end, now()) + ns; }
void fake_fail(int code) { error = code; }
void fake_other_context(void) { current = 0; }
int64_t fake_written(void) { return written; }

/* The driver. */
int cuInit(unsigned flags) { return flags == 0 ? getenv("FAKE_CUDA_FAILS") != NULL ? 100 : 0 : 1; }
int cuDeviceGet(int *device, int ordinal) {
    *device = 7;
    return ordinal == 0 ? 0 : 101;
}
int cuDeviceGetAttribute(int *value, int attribute, int device) {
    *value = L2_BYTES;
    return attribute == 38 && device == 7 ? 0 : 1;
}
int cuDevicePrimaryCtxRetain(void **result, int device) {
    *result = &context;
    return device == 7 ? 0 : 1;
}
int cuCtxSetCurrent(void *given) {
    current = given == &context;
    return current ? 0 : 201;
}
int cuCtxSynchronize(void) { return current ? wait_until(later(default_end, other_end)) : 201; }
int cuEventCreate(void **event, unsigned flags) {
    *event = calloc(1, sizeof(int64_t));
    return flags == 0 ? 0 : 1;
}
int cuEventRecord(int64_t *event, void *stream) {
    if (stream != NULL || !current) {
        return 201;
    }
    *event = later(default_end, now());
    return 0;
}
int cuEventSynchronize(const int64_t *event) { return wait_until(*event); }
int cuEventElapsedTime(float *milliseconds, const int64_t *begin, const int64_t *end) {
    if (now() < *end) {
        return 600;
    }
    *milliseconds = (float)(*end - *begin) / 1e6F;
    return error;
}
int cuMemAlloc_v2(uint64_t *pointer, size_t bytes) {
    *pointer = 4096;
    return bytes >= 2 * L2_BYTES ? 0 : 1;
}
int cuMemsetD8Async(uint64_t pointer, unsigned char value, size_t bytes, void *stream) {
    if (pointer != 4096 || value != 0 || stream != NULL) {
        return 1;
    }
    written += (int64_t)bytes;
    fake_launch(1000000);
    return 0;
}
int cuGetErrorName(int code, const char **name) {
    *name = code == 700 ? "CUDA_ERROR_ILLEGAL_ADDRESS" : NULL;
    return code == 700 ? 0 : 1;
}
