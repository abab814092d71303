/* ostinato.h: the C interface of native tasks. Version 2; fields are only ever added at the end, so tasks
 * compiled with an older header run unchanged. */
#ifndef OSTINATO_H
#define OSTINATO_H

#include <stdint.h>

#define OSTINATO_ABI_VERSION 2

#ifdef __cplusplus
extern "C" {
#endif

/* An array argument. `shape` and `strides` have `ndim` entries; strides are in bytes and may be negative. */
typedef struct {
    void *data;
    int64_t ndim;
    const int64_t *shape;
    const int64_t *strides;
} ost_array;

/* A scalar argument: `f64` where the access says float, `i64` where it says int. */
typedef union {
    double f64;
    int64_t i64;
} ost_scalar;

/* One call of a task. Everything it points to is valid only during the call. */
typedef struct {
    const ost_array *arrays;   /* the array arguments, in the order of the access declaration */
    const ost_scalar *scalars; /* the scalar arguments, likewise */
    int32_t n_arrays;
    int32_t n_scalars;
    uint64_t step;     /* counts from 0 over the program's life */
    void *user;        /* as given to ostinato.native(..., user=) */
    void *const *data; /* since version 2: data[i] is arrays[i].data, one beside the other */
} ost_call;

/* A native task: returns 0 for success; any other value fails the operation. It runs without Python's global
 * interpreter lock, restores the floating-point environment, fences its non-temporal stores, and neither throws
 * nor longjmps across the call. */
typedef int32_t (*ost_task)(const ost_call *call);

#ifdef __cplusplus
}
#endif

#endif /* OSTINATO_H */
