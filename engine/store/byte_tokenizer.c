/* byte_tokenizer.c: the tokenizer of byte-level models, as Hugging Face's tokenizers read it
 *
 * Byte-level BPE names each byte by a printable character: the printable bytes of Latin-1 by themselves, the other 68 by
 * U+0100 and on, in order. With 256 such symbols, no merges and id = byte, every text is its own bytes. */
#include "engine/store/hf_files.h"
#include <jansson.h>
#include <stdbool.h>
#include <stdlib.h>

static bool is_printable(unsigned byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

static json_t *vocabulary(void)
{
    json_t *table = json_object();
    unsigned next = 0x100;
    for (unsigned byte = 0; byte < 256; byte++) {
        unsigned point = is_printable(byte) ? byte : next++;
        char text[3] = { 0 };
        if (point < 0x80) {
            text[0] = (char)point;
        } else {
            text[0] = (char)(0xc0 | point >> 6);
            text[1] = (char)(0x80 | (point & 0x3f));
        }
        json_object_set_new(table, text, json_integer(byte));
    }
    return table;
}

static char *dump(json_t *root)
{
    char *text = json_dumps(root, JSON_INDENT(1));
    json_decref(root);
    if (!text) abort();
    return text;
}

char *zr_byte_tokenizer(void)
{
    json_t *byte_level = json_pack("{s:s, s:b, s:b, s:b}", "type", "ByteLevel", "add_prefix_space", 0, "trim_offsets",
                                   0, "use_regex", 0);
    json_t *end = json_pack("{s:i, s:s, s:b, s:b, s:b, s:b, s:b}", "id", 256, "content", "<|endoftext|>", "single_word",
                            0, "lstrip", 0, "rstrip", 0, "normalized", 0, "special", 1);
    json_t *model = json_pack("{s:s, s:n, s:n, s:n, s:n, s:b, s:b, s:b, s:o, s:[]}", "type", "BPE", "dropout",
                              "unk_token", "continuing_subword_prefix", "end_of_word_suffix", "fuse_unk", 0,
                              "byte_fallback", 0, "ignore_merges", 0, "vocab", vocabulary(), "merges");
    return dump(json_pack("{s:s, s:n, s:n, s:[o], s:n, s:O, s:n, s:o, s:o}", "version", "1.0", "truncation", "padding",
                          "added_tokens", end, "normalizer", "pre_tokenizer", byte_level, "post_processor", "decoder",
                          byte_level, "model", model));
}

char *zr_byte_tokenizer_config(void)
{
    return dump(json_pack("{s:s, s:s, s:s, s:b, s:i}", "tokenizer_class", "PreTrainedTokenizerFast", "bos_token",
                          "<|endoftext|>", "eos_token", "<|endoftext|>", "clean_up_tokenization_spaces", 0,
                          "model_max_length", 1000000));
}
