/* options.h: the command line, read by one table that also writes --help and the completion */
#ifndef ZEROCTL_OPTIONS_H
#define ZEROCTL_OPTIONS_H

#include "clients/zeroctl/verb.h"

/* Reads argv, argv[0] being the verb. EXIT_USAGE: the sentence is in call->failure. */
int options_read(struct call *call, const struct verb *verb, int argc, char **argv);
void options_free(struct options *options);

void options_help(const struct verb *verb); /* of one verb; NULL: of all */
void options_completion(void);              /* a bash script */

#endif
