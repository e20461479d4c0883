/* hint.c: the nearest right key, or the right place of a known one */
#include "config/keys.h"
#include <string.h>

#define WORD_MAX 80

/* Edits (insert, delete, change, swap of neighbours) from a to b, as optimal string alignment counts them. */
static uint32_t distance(const char *a, const char *b)
{
    size_t rows = strlen(a), columns = strlen(b);
    if (rows > WORD_MAX || columns > WORD_MAX) return UINT32_MAX;
    uint32_t before[WORD_MAX + 1], last[WORD_MAX + 1], now[WORD_MAX + 1];
    for (size_t j = 0; j <= columns; j++)
        last[j] = (uint32_t)j;
    memcpy(before, last, sizeof before);

    for (size_t i = 1; i <= rows; i++) {
        now[0] = (uint32_t)i;
        for (size_t j = 1; j <= columns; j++) {
            uint32_t best = last[j - 1] + (a[i - 1] != b[j - 1]);
            if (last[j] + 1 < best) best = last[j] + 1;
            if (now[j - 1] + 1 < best) best = now[j - 1] + 1;
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1] && before[j - 2] + 1 < best)
                best = before[j - 2] + 1;
            now[j] = best;
        }
        memcpy(before, last, sizeof before);
        memcpy(last, now, sizeof last);
    }
    return last[columns];
}

/* Near enough to be a slip of the hand: a third of the letters, at least two. */
static uint32_t reach(const char *word)
{
    uint32_t third = (uint32_t)strlen(word) / 3;
    return third < 2 ? 2 : third;
}

const char *zr_hint_name(const char *word, const char *const *names)
{
    const char *best = NULL;
    uint32_t least = reach(word) + 1;
    for (int i = 0; names[i]; i++) {
        uint32_t edits = distance(word, names[i]);
        if (edits < least && edits < strlen(names[i])) {
            least = edits;
            best = names[i];
        }
    }
    return best;
}

static const char *last_part(const char *path)
{
    const char *dot = strrchr(path, '.');
    return dot ? dot + 1 : path;
}

static bool same_section(const char *a, const char *b)
{
    size_t bytes = (size_t)(last_part(a) - a);
    return (size_t)(last_part(b) - b) == bytes && strncmp(a, b, bytes) == 0;
}

static const char *stands_for(const struct zr_key *key)
{
    return key->status == ZR_KEY_ALIAS || key->status == ZR_KEY_OLD ? key->why : key->path;
}

/* A key of exactly this name in another place; of several, the one under the same top section, else the first. */
static const struct zr_key *right_place(const char *path)
{
    const char *name = last_part(path);
    const struct zr_key *found = NULL;
    size_t top = strcspn(path, ".");
    for (uint32_t i = 0; i < zr_key_count(); i++) {
        if (strcmp(last_part(zr_keys[i].path), name) != 0) continue;
        if (!found || (strncmp(zr_keys[i].path, path, top + 1) == 0 && strncmp(found->path, path, top + 1) != 0))
            found = &zr_keys[i];
    }
    return found;
}

/* The keys that `path`'s section does have, where they are few enough to be read. */
static void list_section(const char *path, struct zr_text *out)
{
    uint32_t count = 0;
    if (!strchr(path, '.')) return;
    for (uint32_t i = 0; i < zr_key_count(); i++)
        count += same_section(path, zr_keys[i].path);
    if (count == 0 || count > 20) return;
    for (uint32_t i = 0, any = 0; i < zr_key_count(); i++)
        if (same_section(path, zr_keys[i].path))
            zr_text_add(out, "%s%s", any++ ? ", " : "\n  hint: the keys here are ", last_part(zr_keys[i].path));
}

bool zr_hint_misplaced(const char *path)
{
    const struct zr_key *place = right_place(path);
    return place && place->type == ZR_KEY_SECTION && place->status == ZR_KEY_USED;
}

void zr_hint_key(const char *path, struct zr_text *out)
{
    const struct zr_key *place = right_place(path);
    if (place && (place->status == ZR_KEY_NOTED || place->status == ZR_KEY_REFUSED) &&
        strncmp(place->path, path, strcspn(path, ".") + 1) != 0) {
        zr_text_add(out, "\n  hint: %s is the only key of that name", place->path);
        return;
    }
    if (place) {
        zr_text_add(out, "\n  hint: its place is %s", stands_for(place));
        return;
    }

    const char *name = last_part(path), *best = NULL;
    uint32_t least = UINT32_MAX;
    for (uint32_t i = 0; i < zr_key_count(); i++) {
        const char *known = last_part(zr_keys[i].path);
        uint32_t edits = distance(name, known);
        if (edits == UINT32_MAX || edits >= strlen(known) || edits >= strlen(name)) continue;
        uint32_t cost =
            2 * edits + !same_section(path, zr_keys[i].path); /* the same section first, at equal distance */
        if (edits <= reach(name) && cost < least) {
            least = cost;
            best = zr_keys[i].status == ZR_KEY_OLD ? zr_keys[i].why : zr_keys[i].path;
        }
    }
    if (!best)
        list_section(path, out);
    else
        zr_text_add(out, "\n  hint: did you mean %s?", same_section(path, best) ? last_part(best) : best);
}
