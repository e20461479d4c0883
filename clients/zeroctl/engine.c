/* engine.c: verbs that need the engine in the process: handed over to zerod, which has it */
#include "clients/zeroctl/session.h"
#include <errno.h>
#include <string.h>
#include <unistd.h>

int verb_engine(struct call *call)
{
    char program[4096];
    session_program("zerod", program, sizeof program);
    execvp(program, call->argv - 1); /* argv[0] is our own name, then the verb: as zerod wants it */
    return call_fail(call, EXIT_FAILED, "%s cannot be started: %s", program, strerror(errno));
}
