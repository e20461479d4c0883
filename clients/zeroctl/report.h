/* report.h: what the daemon says of a job, as JSON, read for people and for summaries */
#ifndef ZEROCTL_REPORT_H
#define ZEROCTL_REPORT_H

#include "clients/zeroctl/screen.h"
#include "clients/zeroctl/session.h"
#include <stdio.h>

/* The job's status; json_decref() it. NULL: the sentence is in call->failure. */
json_t *report_job(struct session *session, struct call *call);

void report_tiers(const json_t *job, struct progress *progress); /* and what bounds the step */

/* Where the bytes live, one line a purpose, with budgets and what was moved. */
void report_places(const json_t *job, FILE *stream);

uint64_t report_count(const json_t *object, const char *path); /* "moved/nvme_read_bytes"; 0 where there is none */

#endif
