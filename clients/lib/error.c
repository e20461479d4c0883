/* error.c: the sentence of this thread's last failure; structs that begin with their size */
#include "clients/lib/internal.h"
#include "ipc/status.h"
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

static _Thread_local char last_text[1024];

ZC_EXPORT const char *zc_error_text(void)
{
    return last_text;
}

ZC_EXPORT const char *zc_version(void)
{
    return "zeroclient " ZR_VERSION;
}

void zc_clear(void)
{
    last_text[0] = 0;
}

int zc_fail(int error, const char *format, ...)
{
    va_list values;
    va_start(values, format);
    vsnprintf(last_text, sizeof last_text, format, values);
    va_end(values);
    return error;
}

int zc_fail_status(uint32_t status, const char *sentence)
{
    if (!sentence || !*sentence) sentence = zrp_status_text(status);
    if (status >= ZRP_EINPUT && status <= ZRP_ECONFIG) return zc_fail(-(int)status, "%s", sentence);
    if (status == ZRP_EVERSION) return zc_fail(ZC_EINPUT, "%s", sentence);
    return zc_fail(ZC_EBUG, "%s", sentence);
}

/* A caller's struct into ours: what it lacks is zero; what we do not know of must be zero. */
int zc_copy_in(void *to, size_t to_bytes, const void *from, const char *what)
{
    uint32_t size;
    memset(to, 0, to_bytes);
    if (!from) return ZC_OK;
    memcpy(&size, from, sizeof size);
    if (size < sizeof size) return zc_fail(ZC_EINPUT, "%s.size is %u: set it to sizeof of the struct", what, size);
    for (size_t i = to_bytes; i < size; i++)
        if (((const unsigned char *)from)[i])
            return zc_fail(ZC_EINPUT, "%s uses members that %s does not know", what, zc_version());
    memcpy(to, from, size < to_bytes ? size : to_bytes);
    return ZC_OK;
}

/* Ours into a caller's struct, which may be shorter; its size stays. */
void zc_copy_out(void *to, const void *from, size_t from_bytes)
{
    uint32_t size;
    memcpy(&size, to, sizeof size);
    size_t bytes = size < from_bytes ? size : from_bytes;
    if (bytes > sizeof size) memcpy((char *)to + sizeof size, (const char *)from + sizeof size, bytes - sizeof size);
}
