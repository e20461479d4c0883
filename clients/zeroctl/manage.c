/* manage.c: what is asked of a daemon in one sentence: export, profile, stop */
#include "clients/zeroctl/session.h"
#include <stdio.h>

static int done(struct call *call, const char *verb, const char *what)
{
    if (call->options.json) return call_print(call, json_pack("{s:s}", verb, what));
    if (!call->options.quiet) printf("%s\n", what);
    return EXIT_DONE;
}

int verb_export(struct call *call)
{
    struct session session = { 0 };
    const struct options *options = &call->options;
    if (options->operand_count != 1)
        return call_fail(call, EXIT_USAGE, "export needs the directory to write: zeroctl export DIR");
    int code = session_open(&session, call);
    if (code == EXIT_DONE)
        code = session_job(&session, call, options->config || options->model ? 0 : ZC_JOB_ATTACH_ONLY);
    int zc = code == EXIT_DONE ? zc_job_save(session.job, options->operands[0], 0) : ZC_OK;
    if (zc) code = call_fail_zc(call, zc, "");
    session_close(&session);
    return code == EXIT_DONE ? done(call, "exported", options->operands[0]) : code;
}

int verb_profile(struct call *call)
{
    struct session session = { 0 };
    const struct options *options = &call->options;
    if (options->operand_count != 1)
        return call_fail(call, EXIT_USAGE, "profile needs a file to write: zeroctl profile FILE");
    int code = session_open(&session, call);
    int zc = code == EXIT_DONE ? zc_daemon_trace(session.client, options->operands[0]) : ZC_OK;
    if (zc) code = call_fail_zc(call, zc, "");
    session_close(&session);
    return code == EXIT_DONE ? done(call, "trace", options->operands[0]) : code;
}

int verb_stop(struct call *call)
{
    struct session session = { 0 };
    const bool whole = call->options.operand_count == 0;
    if (!whole) call->options.job = call->options.operands[0];
    int code = session_open(&session, call);
    if (code == EXIT_DONE && !whole) code = session_job(&session, call, ZC_JOB_ATTACH_ONLY);
    int zc = code != EXIT_DONE ? ZC_OK : whole ? zc_daemon_stop(session.client) : zc_job_close(session.job);
    if (zc) code = call_fail_zc(call, zc, "");
    session_close(&session);
    return code == EXIT_DONE ? done(call, "stopped", whole ? "zerod" : call->options.operands[0]) : code;
}
