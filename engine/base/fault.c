/* fault.c: numbered failure points */
#include "engine/base/fault.h"

#ifdef ZR_FAULT_POINTS
#include <pthread.h>
#include <stdio.h>
#include <string.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER; /* guards all below */
static char armed_point[64];                             /* "": any point */
static uint32_t remaining;                               /* asks until one fails; 0: disarmed */
static bool fired;

bool zr_fault(const char *point)
{
    pthread_mutex_lock(&lock);
    bool fail = remaining > 0 && (armed_point[0] == '\0' || strcmp(armed_point, point) == 0) && --remaining == 0;
    fired |= fail;
    pthread_mutex_unlock(&lock);
    return fail;
}

void zr_fault_arm(const char *point_or_null, uint32_t nth)
{
    pthread_mutex_lock(&lock);
    snprintf(armed_point, sizeof armed_point, "%s", point_or_null ? point_or_null : "");
    remaining = nth;
    fired = false;
    pthread_mutex_unlock(&lock);
}

void zr_fault_disarm(void)
{
    zr_fault_arm(NULL, 0);
}

bool zr_fault_fired(void)
{
    pthread_mutex_lock(&lock);
    bool answer = fired;
    pthread_mutex_unlock(&lock);
    return answer;
}
#else
typedef int zr_fault_points_are_off; /* a translation unit is never empty */
#endif
