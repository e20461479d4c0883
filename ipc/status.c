/* status.c: codes on the wire and their sentence */
#include "ipc/status.h"
#include <stdarg.h>
#include <stdio.h>

enum zrp_status zrp_fail(struct zrp_why *why, enum zrp_status status, const char *format, ...)
{
    if (why) {
        va_list values;
        va_start(values, format);
        vsnprintf(why->text, sizeof why->text, format, values);
        va_end(values);
    }
    return status;
}

const char *zrp_status_text(unsigned status)
{
    static const char *const texts[ZRP_STATUS_COUNT] = {
        [ZRP_OK] = "done",
        [ZRP_EINPUT] = "an argument, batch or setting is wrong",
        [ZRP_EFULL] = "a budget or queue is full",
        [ZRP_EIO] = "a device or file of the daemon failed",
        [ZRP_EGONE] = "the daemon went away",
        [ZRP_EACCESS] = "not allowed for this user",
        [ZRP_EBUG] = "the daemon broke a promise of its own",
        [ZRP_ETIME] = "the time limit passed",
        [ZRP_ECONFIG] = "the configuration is wrong",
        [ZRP_EVERSION] = "daemon and library have no protocol version in common",
        [ZRP_EPROTOCOL] = "a rule of the protocol was broken",
    };
    return status < ZRP_STATUS_COUNT ? texts[status] : "an unknown status";
}
