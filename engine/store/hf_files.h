/* hf_files.h: whole small files of a directory; internal to the store room */
#ifndef ZR_STORE_HF_FILES_H
#define ZR_STORE_HF_FILES_H

#include "engine/base/error.h"
#include <stdint.h>

/* The file's bytes with a NUL behind them, from the heap. `folder` is for messages. */
ZR_MUST_CHECK enum zr_code zr_hf_slurp(int directory_fd, const char *folder, const char *name, uint64_t most,
                                       char **ret_text, uint64_t *ret_bytes, struct zr_error *err);

/* tokenizer.json of a byte-level vocabulary: 256 symbols, no merges, id = byte; 256 is <|endoftext|>. From the heap. */
char *zr_byte_tokenizer(void);
char *zr_byte_tokenizer_config(void);

#endif
