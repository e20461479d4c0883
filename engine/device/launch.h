/* launch.h: an operation of kernels/ queued on a stream, typed: zr_gemm(stream, &(struct zr_op_gemm){ ... }) */
#ifndef ZR_DEVICE_LAUNCH_H
#define ZR_DEVICE_LAUNCH_H

#include "engine/device/device.h"
#include <assert.h>

#define ZR_LAUNCH_BYTES 256

#define ZR_LAUNCHER(op)                                                                                                \
    static inline void zr_##op(struct zr_stream *stream, const struct zr_op_##op *args)                                \
    {                                                                                                                  \
        static_assert(sizeof *args <= ZR_LAUNCH_BYTES, "arguments travel in the queue entry");                         \
        zr_stream_launch(stream, ZR_OP_##op, args);                                                                    \
    }
ZR_OPS(ZR_LAUNCHER)
#undef ZR_LAUNCHER

#endif
