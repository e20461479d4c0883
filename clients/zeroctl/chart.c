/* chart.c: a curve as SVG and as text */
#include "clients/zeroctl/chart.h"
#include <errno.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum {
    WIDTH = 860,
    HEIGHT = 420,
    LEFT = 64,
    RIGHT = 20,
    TOP = 44,
    BOTTOM = 48,
    BINS_MAX = 800,
    TEXT_COLUMNS = 60,
    TEXT_ROWS = 6
};

bool curve_add(struct curve *curve, uint64_t step, double value)
{
    if (!isfinite(value)) return true;
    if (curve->count == curve->room) {
        size_t room = curve->room ? 2 * curve->room : 256;
        uint64_t *steps = realloc(curve->steps, room * sizeof *steps);
        if (steps) curve->steps = steps;
        float *values = realloc(curve->values, room * sizeof *values);
        if (values) curve->values = values;
        if (!steps || !values) return false;
        curve->room = room;
    }
    curve->steps[curve->count] = step;
    curve->values[curve->count++] = (float)value;
    return true;
}

void curve_free(struct curve *curve)
{
    free(curve->steps);
    free(curve->values);
    *curve = (struct curve){ 0 };
}

/* -- axes ---------------------------------------------------------------------------------------------------------- */

struct axis {
    double low, high, tick;
};

/* 1, 2 or 5 times a power of ten, at most `ticks` of them. */
static struct axis make_axis(double low, double high, int ticks)
{
    if (high - low < 1e-9) {
        low -= 0.5;
        high += 0.5;
    }
    double tick = pow(10, floor(log10((high - low) / ticks)));
    static const double steps[] = { 1, 2, 5, 10 };
    for (size_t i = 0; i < 4; i++) {
        if ((high - low) / (tick * steps[i]) <= ticks) {
            tick *= steps[i];
            break;
        }
    }
    return (struct axis){ .low = floor(low / tick) * tick, .high = ceil(high / tick) * tick, .tick = tick };
}

static void bounds(const struct curve *curve, double *low, double *high)
{
    for (size_t i = 0; i < curve->count; i++) {
        *low = fmin(*low, (double)curve->values[i]);
        *high = fmax(*high, (double)curve->values[i]);
    }
}

static double x_of(const struct axis *axis, double step)
{
    return LEFT + (step - axis->low) / (axis->high - axis->low) * (WIDTH - LEFT - RIGHT);
}

static double y_of(const struct axis *axis, double value)
{
    return HEIGHT - BOTTOM - (value - axis->low) / (axis->high - axis->low) * (HEIGHT - TOP - BOTTOM);
}

/* -- SVG ----------------------------------------------------------------------------------------------------------- */

static void write_text(FILE *file, const char *text)
{
    for (; *text; text++) {
        if (*text == '<')
            fputs("&lt;", file);
        else if (*text == '&')
            fputs("&amp;", file);
        else if ((unsigned char)*text >= ' ')
            fputc(*text, file);
    }
}

static void write_axes(FILE *file, const struct axis *x, const struct axis *y)
{
    fprintf(file, "<g stroke=\"#e2e2e2\" fill=\"#555\" font-size=\"12\">\n");
    for (double value = y->low; value <= y->high + y->tick / 2; value += y->tick)
        fprintf(file,
                "<line x1=\"%d\" x2=\"%d\" y1=\"%.1f\" y2=\"%.1f\"/><text x=\"%d\" y=\"%.1f\" text-anchor=\"end\" "
                "stroke=\"none\">%.4g</text>\n",
                LEFT, WIDTH - RIGHT, y_of(y, value), y_of(y, value), LEFT - 8, y_of(y, value) + 4, value);
    for (double step = x->low; step <= x->high + x->tick / 2; step += x->tick)
        fprintf(file, "<text x=\"%.1f\" y=\"%d\" text-anchor=\"middle\" stroke=\"none\">%.0f</text>\n", x_of(x, step),
                HEIGHT - BOTTOM + 20, step);
    fprintf(file, "<text x=\"%d\" y=\"%d\" text-anchor=\"middle\" stroke=\"none\">step</text></g>\n",
            (LEFT + WIDTH - RIGHT) / 2, HEIGHT - 8);
}

/* Long curves as means of bins, so that the file stays small; the raw points in a paler tone behind would only be noise. */
static void write_curve(FILE *file, const struct curve *curve, const struct axis *x, const struct axis *y,
                        const char *colour, size_t bins_max)
{
    const size_t bins = curve->count < bins_max ? curve->count : bins_max;
    fprintf(file, "<polyline fill=\"none\" stroke=\"%s\" stroke-width=\"1.8\" points=\"", colour);
    for (size_t bin = 0; bin < bins; bin++) {
        const size_t first = bin * curve->count / bins, last = (bin + 1) * curve->count / bins;
        double steps = 0, values = 0;
        for (size_t i = first; i < last; i++) {
            steps += (double)curve->steps[i];
            values += (double)curve->values[i];
        }
        fprintf(file, "%.1f,%.1f ", x_of(x, steps / (double)(last - first)), y_of(y, values / (double)(last - first)));
    }
    fprintf(file, "\"/>\n");
}

int chart_write_svg(struct call *call, const char *path, const char *title, const struct curve *loss,
                    const struct curve *eval_loss)
{
    FILE *file = fopen(path, "we");
    if (!file) return call_fail(call, EXIT_FAILED, "--chart %s: %s", path, strerror(errno));
    double low = INFINITY, high = -INFINITY, last = loss->count ? (double)loss->steps[loss->count - 1] : 1;
    bounds(loss, &low, &high);
    bounds(eval_loss, &low, &high);
    if (!(low <= high)) low = high = 0;
    const struct axis x = make_axis(0, last, 10), y = make_axis(low, high, 8);
    fprintf(file,
            "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 %d %d\" font-family=\"sans-serif\">\n"
            "<rect width=\"100%%\" height=\"100%%\" fill=\"#fff\"/>\n<text x=\"%d\" y=\"24\" font-size=\"15\" "
            "fill=\"#222\">",
            WIDTH, HEIGHT, LEFT);
    write_text(file, title);
    fprintf(file, "</text>\n");
    write_axes(file, &x, &y);
    write_curve(file, loss, &x, &y, "#1f6fb4", BINS_MAX);
    write_curve(file, eval_loss, &x, &y, "#d1495b", BINS_MAX);
    for (size_t i = 0; i < eval_loss->count; i++)
        fprintf(file,
                "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"3.5\" fill=\"#d1495b\"><title>held-out %.4f</title></circle>\n",
                x_of(&x, (double)eval_loss->steps[i]), y_of(&y, (double)eval_loss->values[i]),
                (double)eval_loss->values[i]);
    fprintf(file,
            "<g font-size=\"12\"><text x=\"%d\" y=\"24\" text-anchor=\"end\" fill=\"#1f6fb4\">training loss</text>",
            WIDTH - RIGHT - (eval_loss->count ? 80 : 0));
    if (eval_loss->count)
        fprintf(file, "<text x=\"%d\" y=\"24\" text-anchor=\"end\" fill=\"#d1495b\">held-out</text>", WIDTH - RIGHT);
    fprintf(file, "</g>\n</svg>\n");
    bool failed = ferror(file);
    failed |= fclose(file) != 0;
    return failed ? call_fail(call, EXIT_FAILED, "--chart %s: cannot be written: %s", path, strerror(errno))
                  : EXIT_DONE;
}

/* -- text ---------------------------------------------------------------------------------------------------------- */

void chart_print(const struct curve *loss, bool utf8, void *stream)
{
    static const char *const eighths[] = { " ", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
    static const char *const plain[] = { " ", " ", " ", ".", ".", ":", ":", "#", "#" };
    double low = INFINITY, high = -INFINITY, bins[TEXT_COLUMNS] = { 0 };
    const size_t columns = loss->count < TEXT_COLUMNS ? loss->count : TEXT_COLUMNS;
    if (columns == 0) return;
    for (size_t bin = 0; bin < columns; bin++) {
        const size_t first = bin * loss->count / columns, last = (bin + 1) * loss->count / columns;
        for (size_t i = first; i < last; i++)
            bins[bin] += (double)loss->values[i] / (double)(last - first);
        low = fmin(low, bins[bin]);
        high = fmax(high, bins[bin]);
    }
    const double span = high > low ? high - low : 1;
    for (int row = TEXT_ROWS - 1; row >= 0; row--) {
        if (row == TEXT_ROWS - 1 || row == 0)
            fprintf(stream, "  %8.2f %s", row ? high : low, utf8 ? "│" : "|");
        else
            fprintf(stream, "  %8s %s", "", utf8 ? "│" : "|");
        for (size_t bin = 0; bin < columns; bin++) {
            double filled = ((bins[bin] - low) / span * (TEXT_ROWS - 0.125) + 0.125 - row) * 8;
            fputs((utf8 ? eighths : plain)[filled <= 0 ? 0 : filled >= 8 ? 8 : (int)filled], stream);
        }
        fprintf(stream, "\n");
    }
}
