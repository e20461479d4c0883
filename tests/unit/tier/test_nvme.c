/* test_nvme.c: the space of bytes: layout over paths, what is refused at open, what verification catches */
#include "nvme_help.h"

#include "engine/base/hash.h"
#include "engine/tier/nvme_store.h"

static struct zr_device *device;

static int set_up(void **state)
{
    device = open_host_device();
    return make_places(state);
}

static int tear_down(void **state)
{
    zr_device_close(device);
    return remove_places(state);
}

static void a_fresh_space_reads_as_zeros(void **state)
{
    (void)state;
    struct zr_nvme_config config = small_config(3 * MIB + 4096, 2, device);
    config.verify = true;
    struct zr_nvme *nvme = open_store(&config);
    struct zr_error err = { 0 };
    unsigned char *bytes = aligned_bytes(config.bytes);
    assert_int_equal(zr_nvme_read(nvme, 0, bytes, config.bytes, &err), ZR_OK);
    for (uint64_t i = 0; i < config.bytes; i++)
        assert_int_equal(bytes[i], 0);
    free(bytes);
    zr_nvme_close(nvme);
}

/* Writes and reads odd extents and compares with an array in memory. */
static void check_extents(const struct zr_nvme_config *config, uint64_t seed)
{
    struct zr_nvme *nvme = open_store(config);
    struct zr_error err = { 0 };
    unsigned char *model = calloc(1, config->bytes), *bytes = aligned_bytes(config->bytes);
    const uint64_t granules = config->bytes / 4096;
    for (int turn = 0; turn < 60; turn++) {
        uint64_t first = next_random(&seed) % granules, count = 1 + next_random(&seed) % (granules - first);
        uint64_t offset = first * 4096, length = count * 4096;
        if (turn % 2 == 0) {
            fill_pattern(bytes, length, seed);
            memcpy(model + offset, bytes, length);
            assert_int_equal(zr_nvme_write(nvme, offset, bytes, length, &err), ZR_OK);
        } else {
            memset(bytes, 0xEE, length);
            assert_int_equal(zr_nvme_read(nvme, offset, bytes, length, &err), ZR_OK);
            assert_memory_equal(bytes, model + offset, length);
        }
    }
    assert_int_equal(zr_nvme_read(nvme, 0, bytes, config->bytes, &err), ZR_OK);
    assert_memory_equal(bytes, model, config->bytes);
    free(model);
    free(bytes);
    zr_nvme_close(nvme);
}

static void extents_come_back_whatever_the_layout(void **state)
{
    (void)state;
    static const struct {
        uint32_t paths, block_bytes;
        uint64_t stripe_bytes, bytes;
    } layouts[] = {
        { 1, 4096, 0, 100 * 4096 },          { 1, 0, 0, 5 * MIB + 4096 },       { 2, 8192, 4096, 61 * 4096 },
        { 2, 64 * KIB, 0, 3 * MIB + 12288 }, { 3, 16384, 5 * 4096, 97 * 4096 }, { 3, 0, 0, 13 * MIB },
        { 3, 12288, 64 * KIB, 4096 },
    };
    for (size_t i = 0; i < ZR_COUNT(layouts); i++)
        for (int verify = 0; verify < 2; verify++) {
            struct zr_nvme_config config = small_config(layouts[i].bytes, layouts[i].paths, device);
            config.block_bytes = layouts[i].block_bytes;
            config.stripe_bytes = layouts[i].stripe_bytes;
            config.verify = verify;
            check_extents(&config, i * 2 + (uint64_t)verify);
        }
}

static void the_space_is_spread_over_the_paths_without_gaps(void **state)
{
    (void)state;
    /* 10 stripes and a rest of 4096 over 3 paths: 4, 3, 3 stripes; the rest is the start of stripe 10, on path 1. */
    struct zr_nvme_config config = small_config(10 * 8192 + 4096, 3, device);
    config.stripe_bytes = 8192;
    struct zr_nvme *nvme = open_store(&config);
    assert_int_equal(nvme->files[0].bytes, 4 * 8192);
    assert_int_equal(nvme->files[1].bytes, 3 * 8192 + 4096);
    assert_int_equal(nvme->files[2].bytes, 3 * 8192);
    for (int i = 0; i < 3; i++) {
        struct stat status;
        assert_int_equal(fstat(nvme->files[i].fd, &status), 0);
        assert_int_equal(status.st_size, nvme->files[i].bytes);
        assert_int_equal(status.st_nlink, 0);                                  /* N1 */
        assert_true((uint64_t)status.st_blocks * 512 >= nvme->files[i].bytes); /* N2 */
        assert_int_equal(entries_of(test_paths[i]), 2);
    }
    zr_nvme_close(nvme);
}

static void expect_refusal(const struct zr_nvme_config *config, enum zr_code code, const char *part)
{
    struct zr_nvme *nvme = NULL;
    struct zr_error err = { 0 };
    unsigned before = open_descriptors();
    assert_int_equal(zr_nvme_open(config, &nvme, &err), code);
    assert_null(nvme);
    if (!strstr(err.text, part)) fail_msg("'%s' does not say '%s'", err.text, part);
    assert_int_equal(open_descriptors(), before);
}

static void a_path_that_cannot_be_used_is_named(void **state)
{
    (void)state;
    char path[400];
    struct zr_nvme_config config = small_config(MIB, 2, device);
    snprintf(path, sizeof path, "%s/nowhere", test_root);
    config.paths[1] = path;
    expect_refusal(&config, ZR_EINPUT, path);
    expect_refusal(&config, ZR_EINPUT, "No such file");

    snprintf(path, sizeof path, "%s/file", test_root);
    FILE *file = fopen(path, "w");
    assert_non_null(file);
    fclose(file);
    expect_refusal(&config, ZR_EINPUT, "not a directory");
    unlink(path);

    config.paths[1] = "/proc/self";
    expect_refusal(&config, ZR_EINPUT, "/proc/self");
}

static void odd_sizes_are_refused(void **state)
{
    (void)state;
    struct zr_nvme_config config = small_config(4097, 1, device);
    expect_refusal(&config, ZR_EINPUT, "4097");
    config = small_config(0, 1, device);
    expect_refusal(&config, ZR_EINPUT, "0 bytes");
    config = small_config(MIB, 1, device);
    config.block_bytes = 5000;
    expect_refusal(&config, ZR_EINPUT, "5000");
    config = small_config(MIB, 1, device);
    config.stripe_bytes = 5000;
    expect_refusal(&config, ZR_EINPUT, "5000");
    config = small_config(MIB, 1, device);
    config.depth = 100000;
    expect_refusal(&config, ZR_EINPUT, "100000");
    config.path_count = 0;
    expect_refusal(&config, ZR_EINPUT, "0 paths");
}

static void a_disk_that_is_too_small_is_found_at_open(void **state)
{
    (void)state;
    struct zr_nvme_config config = small_config(UINT64_C(1) << 60, 1, device);
    expect_refusal(&config, ZR_EFULL, "bytes are missing");
    config = small_config(UINT64_C(1) << 60, 3, device);
    expect_refusal(&config, ZR_EFULL, "bytes are missing");
}

static void memory_file_systems_get_a_warning(void **state)
{
    (void)state;
    char path[] = "/dev/shm/zr-nvme-test-XXXXXX";
    if (!mkdtemp(path)) skip();
    struct zr_nvme_config config = small_config(MIB, 1, device);
    config.paths[0] = path;
    config.allow_buffered = true;
    struct zr_nvme *nvme = open_store(&config);
    struct zr_nvme_facts facts;
    zr_nvme_facts(nvme, &facts);
    assert_non_null(strstr(facts.warning, "memory file system"));
    zr_nvme_close(nvme);
    rmdir(path);
}

static void facts_count_what_was_moved_since_open(void **state)
{
    (void)state;
    struct zr_nvme_config config = small_config(4 * MIB, 1, device);
    struct zr_nvme *nvme = open_store(&config);
    struct zr_nvme_facts facts;
    struct zr_error err = { 0 };
    zr_nvme_facts(nvme, &facts);
    assert_int_equal(facts.written_bytes, 0);
    assert_int_equal(facts.write_busy_ns, 0);
    void *bytes = aligned_bytes(3 * MIB);
    assert_int_equal(zr_nvme_write(nvme, 4096, bytes, 3 * MIB, &err), ZR_OK);
    assert_int_equal(zr_nvme_read(nvme, 0, bytes, MIB, &err), ZR_OK);
    zr_nvme_facts(nvme, &facts);
    assert_int_equal(facts.written_bytes, 3 * MIB);
    assert_int_equal(facts.read_bytes, MIB);
    assert_true(facts.write_busy_ns > 0 && facts.read_busy_ns > 0);
    free(bytes);
    zr_nvme_close(nvme);
}

static void opening_and_closing_leaks_no_descriptor(void **state)
{
    (void)state;
    struct zr_nvme_config config = small_config(MIB, 3, device);
    struct zr_error err = { 0 };
    unsigned before = open_descriptors();
    for (int i = 0; i < 5; i++) {
        config.engine = i % 2 ? ZR_IO_THREADS : ZR_IO_AUTO;
        struct zr_nvme *nvme = open_store(&config);
        struct zr_nvme_queue *queue;
        assert_int_equal(zr_nvme_queue_open(nvme, ZR_NVME_READ, "read", 8, &queue, &err), ZR_OK);
        zr_nvme_queue_close(queue);
        zr_nvme_close(nvme);
    }
    assert_int_equal(open_descriptors(), before);
    zr_nvme_close(NULL);
    zr_nvme_queue_close(NULL);
}

/* -- verification -------------------------------------------------------------------------------------------------- */

struct damage {
    struct zr_nvme *nvme;
    unsigned char *bytes, *block;
};

static struct damage written_store(void)
{
    struct zr_nvme_config config = small_config(2 * MIB, 1, device);
    config.verify = true;
    struct damage damage = { .nvme = open_store(&config),
                             .bytes = aligned_bytes(2 * MIB),
                             .block = aligned_bytes(4096) };
    struct zr_error err = { 0 };
    fill_pattern(damage.bytes, 2 * MIB, 7);
    assert_int_equal(zr_nvme_write(damage.nvme, 0, damage.bytes, 2 * MIB, &err), ZR_OK);
    return damage;
}

static void take_block(struct damage *damage, uint64_t offset)
{
    assert_int_equal(pread(damage->nvme->files[0].fd, damage->block, 4096, (off_t)offset), 4096);
}

static void put_block(struct damage *damage, uint64_t offset)
{
    assert_int_equal(pwrite(damage->nvme->files[0].fd, damage->block, 4096, (off_t)offset), 4096);
}

static void expect_caught(struct damage *damage, uint64_t offset, const char *part)
{
    struct zr_error err = { 0 };
    char place[64];
    snprintf(place, sizeof place, "block at %llu of", (unsigned long long)offset);
    assert_int_equal(zr_nvme_read(damage->nvme, 0, damage->bytes, 2 * MIB, &err), ZR_EIO);
    if (!strstr(err.text, place) || !strstr(err.text, part) || !strstr(err.text, test_paths[0]))
        fail_msg("'%s' does not say '%s', '%s' and the path", err.text, place, part);
    /* What lies before the damage is read. */
    if (offset > 0) assert_int_equal(zr_nvme_read(damage->nvme, 0, damage->bytes, offset, &err), ZR_OK);
    zr_nvme_close(damage->nvme);
    free(damage->bytes);
    free(damage->block);
}

static void a_flipped_bit_is_caught(void **state)
{
    (void)state;
    struct damage damage = written_store();
    take_block(&damage, 123 * 4096);
    damage.block[4095] ^= 0x80;
    put_block(&damage, 123 * 4096);
    expect_caught(&damage, 123 * 4096, "number 1");
}

static void a_stale_block_is_caught(void **state)
{
    (void)state;
    struct damage damage = written_store();
    struct zr_error err = { 0 };
    take_block(&damage, 8192);
    fill_pattern(damage.bytes, 4096, 8);
    assert_int_equal(zr_nvme_write(damage.nvme, 8192, damage.bytes, 4096, &err), ZR_OK);
    put_block(&damage, 8192); /* as if the second write had never reached the disk */
    expect_caught(&damage, 8192, "number 2");
}

static void a_misplaced_block_is_caught(void **state)
{
    (void)state;
    struct damage damage = written_store();
    take_block(&damage, 4096);
    put_block(&damage, 2 * MIB - 4096);
    expect_caught(&damage, 2 * MIB - 4096, "does not hold the bytes of its last write");
}

static void without_verification_damage_passes(void **state) /* so the tests above test what they say */
{
    (void)state;
    struct zr_nvme_config config = small_config(MIB, 1, device);
    struct zr_nvme *nvme = open_store(&config);
    struct zr_error err = { 0 };
    unsigned char *block = aligned_bytes(4096);
    assert_int_equal(pwrite(nvme->files[0].fd, block, 4096, 4096), 4096);
    memset(block, 0, 4096);
    assert_int_equal(zr_nvme_read(nvme, 4096, block, 4096, &err), ZR_OK);
    assert_int_equal(block[17], 0xEE);
    free(block);
    zr_nvme_close(nvme);
}

static void a_seal_tells_an_unfinished_write_from_a_broken_one(void **state)
{
    (void)state;
    struct zr_seal *seal;
    struct zr_error err = { 0 };
    unsigned char *block = aligned_bytes(8192);
    assert_int_equal(zr_seal_make(3 * 4096, &seal, &err), ZR_OK);
    zr_seal_begin(seal, 4096, block, 8192);
    assert_int_equal(zr_seal_check(seal, 4096, block, 4096, &err), ZR_EIO);
    assert_non_null(strstr(err.text, "write 1 of it has not ended"));
    zr_seal_end(seal, 4096, 8192);
    assert_int_equal(zr_seal_check(seal, 4096, block, 8192, &err), ZR_OK);
    block[5000] ^= 1;
    assert_int_equal(zr_seal_check(seal, 4096, block, 4096, &err), ZR_OK);
    assert_int_equal(zr_seal_check(seal, 4096, block, 8192, &err), ZR_EIO);
    /* the checksum in the text is that of the whole 4096 bytes */
    char crc[32];
    snprintf(crc, sizeof crc, "%08x, wanted", zr_crc32c(0, block + 4096, 4096));
    assert_non_null(strstr(err.text, crc));
    memset(block, 0, 8192);
    assert_int_equal(zr_seal_check(seal, 0, block, 4096, &err), ZR_OK); /* never written: zeros */
    zr_seal_free(seal);
    free(block);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_fresh_space_reads_as_zeros),
        cmocka_unit_test(extents_come_back_whatever_the_layout),
        cmocka_unit_test(the_space_is_spread_over_the_paths_without_gaps),
        cmocka_unit_test(a_path_that_cannot_be_used_is_named),
        cmocka_unit_test(odd_sizes_are_refused),
        cmocka_unit_test(a_disk_that_is_too_small_is_found_at_open),
        cmocka_unit_test(memory_file_systems_get_a_warning),
        cmocka_unit_test(facts_count_what_was_moved_since_open),
        cmocka_unit_test(opening_and_closing_leaks_no_descriptor),
        cmocka_unit_test(a_flipped_bit_is_caught),
        cmocka_unit_test(a_stale_block_is_caught),
        cmocka_unit_test(a_misplaced_block_is_caught),
        cmocka_unit_test(without_verification_damage_passes),
        cmocka_unit_test(a_seal_tells_an_unfinished_write_from_a_broken_one),
    };
    return cmocka_run_group_tests(tests, set_up, tear_down);
}
