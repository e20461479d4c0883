/* main.c: zerod: a daemon that trains models larger than its device; its verbs need the engine in the process */
#include "engine/serve/daemon.h"
#include "engine/tools/tools.h"

static int plan(int argc, char **argv)
{
    return zr_verb_plan(argc, argv, zr_jobs_dims);
}

/* Verbs of engine/tools: name, function, one line of help. The last row has no name. */
static const struct zr_verb verbs[] = {
    { "plan", plan, "what fits, where every byte lives, how fast" },
    { 0 },
};

int main(int argc, char **argv)
{
    return zr_serve_main(argc, argv, verbs);
}
