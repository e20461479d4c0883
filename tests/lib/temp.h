/* temp.h: a folder of one's own for a test, removed with all that is in it */
#ifndef ZR_TESTS_TEMP_H
#define ZR_TESTS_TEMP_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define TEMP_PATH_BYTES 512

/* Makes an empty folder under TMPDIR, or /tmp where that is not set, and puts its path into `path`. Ends the program
 * where that fails: a test can do nothing without. */
static inline void temp_make(char path[TEMP_PATH_BYTES])
{
    const char *parent = getenv("TMPDIR");
    int length = snprintf(path, TEMP_PATH_BYTES, "%s/zerod-test-XXXXXX", parent && parent[0] ? parent : "/tmp");
    if (length >= TEMP_PATH_BYTES || !mkdtemp(path)) {
        perror("temp_make");
        abort();
    }
}

static inline int temp_remove_one(const char *path, const struct stat *status, int kind, struct FTW *place)
{
    (void)status, (void)kind, (void)place;
    return remove(path);
}

/* Removes the folder and everything in it, never following links out of it. */
static inline void temp_remove(const char *path)
{
    if (nftw(path, temp_remove_one, 16, FTW_DEPTH | FTW_PHYS) != 0) perror("temp_remove");
}

/* "path/name" into `out`, which has TEMP_PATH_BYTES; returns out. */
static inline const char *temp_path(char out[TEMP_PATH_BYTES], const char *path, const char *name)
{
    if (snprintf(out, TEMP_PATH_BYTES, "%s/%s", path, name) >= TEMP_PATH_BYTES) abort();
    return out;
}

/* Writes a text into the file path/name, making the folders that `name` goes through. */
static inline void temp_write(const char *path, const char *name, const char *text)
{
    char whole[TEMP_PATH_BYTES];
    temp_path(whole, path, name);
    for (char *slash = whole; (slash = strchr(slash + 1, '/'));) {
        *slash = '\0';
        mkdir(whole, 0700);
        *slash = '/';
    }
    FILE *file = fopen(whole, "we");
    if (!file || fputs(text, file) < 0 || fclose(file) != 0) {
        perror(whole);
        abort();
    }
}

#endif
