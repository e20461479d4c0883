/* report.c: a job's status, read */
#include "clients/zeroctl/report.h"
#include "clients/zeroctl/words.h"
#include <stdlib.h>
#include <string.h>

json_t *report_job(struct session *session, struct call *call)
{
    char *text = NULL;
    int zc = zc_job_status(session->job, &text);
    if (zc) {
        call_fail_zc(call, zc, "the job's status");
        return NULL;
    }
    json_t *job = json_loads(text, 0, NULL);
    free(text);
    if (!job) call_fail(call, EXIT_FAILED, "the daemon's status is not JSON");
    return job;
}

uint64_t report_count(const json_t *object, const char *path)
{
    char name[64];
    for (const char *slash; (slash = strchr(path, '/')); path = slash + 1) {
        snprintf(name, sizeof name, "%.*s", (int)(slash - path), path);
        object = json_object_get(object, name);
    }
    const json_int_t value = json_integer_value(json_object_get(object, path));
    return value > 0 ? (uint64_t)value : 0;
}

void report_tiers(const json_t *job, struct progress *progress)
{
    const json_t *tiers = json_object_get(job, "tiers");
    for (size_t i = 0; i < WORDS_TIERS; i++) {
        progress->tier_used[i] = report_count(json_array_get(tiers, i), "used_bytes");
        progress->tier_budget[i] = report_count(json_array_get(tiers, i), "budget_bytes");
    }
    const char *bound_by = json_string_value(json_object_get(job, "bound_by"));
    snprintf(progress->bound_by, sizeof progress->bound_by, "%s", bound_by ? bound_by : "");
}

static void print_row(FILE *stream, const char *name, const uint64_t bytes[WORDS_TIERS])
{
    fprintf(stream, "  %-26s", name);
    for (int tier = 0; tier < WORDS_TIERS; tier++)
        fprintf(stream, "%12s", bytes[tier] ? words_bytes(bytes[tier]).text : "-");
    fprintf(stream, "\n");
}

void report_places(const json_t *job, FILE *stream)
{
    struct progress progress = { 0 };
    size_t index;
    const json_t *place;
    report_tiers(job, &progress);
    fprintf(stream, "  %-26s%12s%12s%12s\n", "where the bytes lived", "device", "host", "nvme");
    json_array_foreach(json_object_get(job, "places"), index, place)
    {
        uint64_t bytes[WORDS_TIERS];
        for (int tier = 0; tier < WORDS_TIERS; tier++)
            bytes[tier] = report_count(place, words_tiers[tier]);
        print_row(stream, json_string_value(json_object_get(place, "purpose")), bytes);
    }
    print_row(stream, "total (allocated)", progress.tier_used);
    print_row(stream, "budget", progress.tier_budget);
    fprintf(stream, "  moved: %s to the device, %s back, %s nvme read, %s written\n",
            words_bytes(report_count(job, "moved/up_bytes")).text,
            words_bytes(report_count(job, "moved/down_bytes")).text,
            words_bytes(report_count(job, "moved/nvme_read_bytes")).text,
            words_bytes(report_count(job, "moved/nvme_written_bytes")).text);
}
