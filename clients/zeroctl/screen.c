/* screen.c: the progress bar */
#include "clients/zeroctl/screen.h"
#include "clients/zeroctl/feed.h"
#include "clients/zeroctl/words.h"
#include <inttypes.h>
#include <langinfo.h>
#include <locale.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#define DRAW_SECONDS 0.1
#define LINE_SECONDS 10.0
enum { BAR_CELLS = 40, TIER_CELLS = 8, LINE_BYTES = 512 };

void screen_open(struct screen *screen, const struct call *call)
{
    const char *term = getenv("TERM");
    setlocale(LC_CTYPE, "");
    *screen = (struct screen){ .quiet = call->options.quiet,
                               .terminal = isatty(STDERR_FILENO) && term && strcmp(term, "dumb") != 0,
                               .utf8 = strcmp(nl_langinfo(CODESET), "UTF-8") == 0,
                               .last_drawn = -1e9 };
    screen->colour = screen->terminal && !getenv("NO_COLOR") && !call->options.no_color;
}

static int columns(void)
{
    struct winsize size;
    if (ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col > 0) return size.ws_col;
    const char *given = getenv("COLUMNS");
    int number = given ? atoi(given) : 0;
    return number > 0 ? number : 80;
}

/* A line that knows how many columns it takes: bytes and columns differ in UTF-8. A field that no longer fits is left out. */
struct line {
    char text[LINE_BYTES];
    size_t bytes;
    int width, room;
};

static void add(struct line *line, int width, const char *text)
{
    const size_t bytes = strlen(text);
    if (line->width + width > line->room || line->bytes + bytes >= sizeof line->text) {
        line->room = line->width; /* what is right of it is left out too */
        return;
    }
    memcpy(line->text + line->bytes, text, bytes + 1);
    line->bytes += bytes;
    line->width += width;
}

__attribute__((format(printf, 2, 3))) static void addf(struct line *line, const char *format, ...)
{
    char text[128];
    va_list arguments;
    va_start(arguments, format);
    int width = vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    add(line, width, text);
}

static void add_bar(struct line *line, const struct screen *screen, double share, int cells)
{
    char text[LINE_BYTES / 2] = "";
    const int full = (int)(share * cells + 0.5);
    for (int i = 0; i < cells; i++)
        strcat(text, i < full ? (screen->utf8 ? "━" : "#") : (screen->utf8 ? "─" : "-"));
    add(line, cells, text);
}

static void add_tier(struct line *line, const struct screen *screen, const struct progress *progress, int tier)
{
    static const char *const eighths[] = { "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
    const double used = (double)progress->tier_used[tier], budget = (double)progress->tier_budget[tier];
    char text[64] = "";
    if (budget <= 0) return;
    for (int i = 0; i < TIER_CELLS; i++) {
        double filled = used / budget * TIER_CELLS - i;
        int level = filled <= 0 ? 0 : filled >= 1 ? 7 : (int)(filled * 8);
        strcat(text, screen->utf8 ? eighths[level] : level >= 4 ? "#" : ".");
    }
    addf(line, "  %s ", words_tiers[tier]);
    add(line, TIER_CELLS, text);
    addf(line, " %s/%s", words_bytes(progress->tier_used[tier]).text, words_bytes(progress->tier_budget[tier]).text);
}

static void draw(struct screen *screen, const struct progress *progress)
{
    const int width = columns();
    struct line first = { .room = width - 1 }, second = { .room = width - 1 };
    const double share = progress->max_steps ? (double)progress->step / (double)progress->max_steps : 0;
    addf(&first, "  step %s/%s", words_count(progress->step).text, words_count(progress->max_steps).text);
    addf(&first, "  loss %.3f", progress->loss);
    addf(&first, "  %s tok/s", words_rate(progress->tokens_per_second).text);
    addf(&first, "  %s left", words_duration(progress->seconds_left).text);
    addf(&first, "  %3.0f%% ", 100 * share);
    int cells = first.room - first.width;
    if (cells >= 8) add_bar(&first, screen, share, cells < BAR_CELLS ? cells : BAR_CELLS);

    addf(&second, "  lr %.1e", progress->learning_rate);
    addf(&second, "  norm %.2f", progress->grad_norm);
    if (progress->bound_by[0]) addf(&second, "  bound by %s", progress->bound_by);
    for (int tier = 0; tier < WORDS_TIERS; tier++)
        add_tier(&second, screen, progress, tier);

    if (screen->lines) fprintf(stderr, "\r\033[%dA", screen->lines);
    fprintf(stderr, "\033[K%s%s%s\n\033[K%s\n", screen->colour ? "\033[1m" : "", first.text,
            screen->colour ? "\033[0m" : "", second.text);
    screen->lines = 2;
}

static void print_line(const struct progress *progress)
{
    fprintf(stderr,
            "step %" PRIu64 "/%" PRIu64 " | loss %.4f | norm %.3f | lr %.2e | %.0f ms | %.0f tok/s | %s | %s left\n",
            progress->step, progress->max_steps, progress->loss, progress->grad_norm, progress->learning_rate,
            1e3 * progress->step_seconds, progress->tokens_per_second, progress->bound_by[0] ? progress->bound_by : "-",
            words_duration(progress->seconds_left).text);
}

void screen_show(struct screen *screen, const struct progress *progress, bool last)
{
    const double now = seconds_now();
    if (screen->quiet || (!last && now - screen->last_drawn < (screen->terminal ? DRAW_SECONDS : LINE_SECONDS))) return;
    screen->last_drawn = now;
    if (screen->terminal)
        draw(screen, progress);
    else
        print_line(progress);
}

void screen_close(struct screen *screen)
{
    screen->lines = 0;
}
