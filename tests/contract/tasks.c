/* Native tasks that write down what they are given. */
#include <ostinato.h>
#include <string.h>

/* out[0] = step */
int32_t write_step(const ost_call *call) {
    ((double *)call->arrays[0].data)[0] = (double)call->step;
    return 0;
}

/* out[0..7] = n_arrays, n_scalars, ndim, shape, stride, i64, f64, user[0] */
int32_t describe(const ost_call *call) {
    double *out = (double *)call->arrays[1].data;
    out[0] = call->n_arrays;
    out[1] = call->n_scalars;
    out[2] = (double)call->arrays[0].ndim;
    out[3] = (double)call->arrays[0].shape[0];
    out[4] = (double)call->arrays[0].strides[0];
    out[5] = (double)call->scalars[0].i64;
    out[6] = call->scalars[1].f64;
    out[7] = call->user ? ((const double *)call->user)[0] : -1.0;
    return 0;
}

/* out[0] += i64 */
int32_t add(const ost_call *call) {
    ((double *)call->arrays[0].data)[0] += (double)call->scalars[0].i64;
    return 0;
}

int32_t fail_at_three(const ost_call *call) {
    ((double *)call->arrays[0].data)[0] += 1;
    return call->step == 3 ? 42 : 0;
}

/* dst = 2 * dst + src, element by element of vectors */
int32_t combine(const ost_call *call) {
    const ost_array *dst = &call->arrays[0], *src = &call->arrays[1];
    if (dst->ndim != 1 || src->ndim != 1 || dst->shape[0] != src->shape[0])
        return 7;
    for (int64_t i = 0; i < dst->shape[0]; ++i) {
        double *to = (double *)((char *)dst->data + i * dst->strides[0]);
        *to = 2 * *to + *(const double *)((const char *)src->data + i * src->strides[0]);
    }
    return 0;
}
