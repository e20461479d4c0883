/* words.h: numbers for people */
#ifndef ZEROCTL_WORDS_H
#define ZEROCTL_WORDS_H

#include <stddef.h>
#include <stdint.h>

struct words {
    char text[32];
};

struct words words_bytes(uint64_t bytes);    /* 5.21 MiB */
struct words words_count(uint64_t count);    /* 1,173,376 */
struct words words_rate(double per_second);  /* 13.1k, 812 */
struct words words_duration(double seconds); /* 0:07, 3:16, 1:02:03, 2 d 04 h */

/* A member of a JSON object's tiers: "device", "host", "nvme". */
static const char *const words_tiers[] = { "device", "host", "nvme" };
enum { WORDS_TIERS = 3 };

#endif
