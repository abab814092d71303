/* Implementations of one task: dst = src * factor. */
#include <ostinato.h>

int32_t scale(const ost_call *call) {
    const ost_array *src = &call->arrays[0], *dst = &call->arrays[1];
    for (int64_t i = 0; i < src->shape[0]; i++)
        *(double *)((char *)dst->data + i * dst->strides[0]) =
            *(const double *)((const char *)src->data + i * src->strides[0]) * call->scalars[0].f64;
    return 0;
}

int32_t scale_slowly(const ost_call *call) {
    for (volatile int64_t i = 0; i < 2000000; i++) {
    }
    return scale(call);
}

/* It takes arrays as they lie in memory: wrong where strides say otherwise. */
int32_t scale_as_if_dense(const ost_call *call) {
    const double *src = (const double *)call->arrays[0].data;
    double *dst = (double *)call->arrays[1].data;
    for (int64_t i = 0; i < call->arrays[0].shape[0]; i++)
        dst[i] = src[i] * call->scalars[0].f64;
    return 0;
}
