/* fault.h: numbered failure points, empty in release builds
 *
 * A call into the system that can fail asks zr_fault("name") first; a test arms the n-th ask, or asks by name, and the
 * caller behaves as if the system had failed. Thread-safe. */
#ifndef ZR_BASE_FAULT_H
#define ZR_BASE_FAULT_H

#include <stdbool.h>
#include <stdint.h>

#ifdef ZR_FAULT_POINTS
bool zr_fault(const char *point);
void zr_fault_arm(const char *point_or_null, uint32_t nth); /* the nth matching ask from now on fails, once */
void zr_fault_disarm(void);
bool zr_fault_fired(void);
#else
static inline bool zr_fault(const char *point)
{
    (void)point;
    return false;
}
#endif

#endif
