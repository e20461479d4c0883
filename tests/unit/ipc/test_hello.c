/* test_hello.c: versions, limits and layouts of the handshake; areas; messages with descriptors */
#include "ipc/channel.h"
#include "ipc/check.h"
#include "ipc/hello.h"
#include <errno.h>
#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cmocka.h>

static const struct zrp_limits limits = { .ring_entries_max = 4096, .slab_bytes_max = 1 << 30 };

static enum zrp_status answer(const struct zrp_hello *hello, struct zrp_welcome *welcome, struct zrp_why *why)
{
    struct zrp_hello copy;
    struct zrp_layout layout;
    return zrp_hello_answer(hello, sizeof *hello, &limits, &copy, welcome, &layout, why);
}

static void both_sides_agree_on_the_layout(void **state)
{
    (void)state;
    struct zrp_hello hello = zrp_hello_make("test", "lib 1", 33, 100000);
    struct zrp_welcome welcome, read;
    struct zrp_layout layout;
    struct zrp_why why = { 0 };
    assert_int_equal(hello.ring_entries, 64);
    assert_int_equal(hello.slab_bytes, 25 * 4096);
    assert_int_equal(answer(&hello, &welcome, &why), ZRP_OK);
    assert_int_equal(zrp_welcome_check(&welcome, sizeof welcome, &hello, &read, &layout, &why), ZRP_OK);
    assert_true(layout.cqe_offset + 64 * sizeof(struct zrp_cqe) <= layout.sentence_offset);
    assert_true(layout.sentence_offset + 64 * ZRP_SENTENCE <= layout.down_bytes);
    assert_true(layout.sqe_offset + 64 * sizeof(struct zrp_sqe) <= layout.slab_offset);
    assert_int_equal(layout.slab_offset + layout.slab_bytes, layout.up_bytes);
    assert_int_equal(layout.slab_offset % 4096, 0);
}

static void another_major_version_is_refused_with_the_range_even_in_an_unknown_form(void **state)
{
    (void)state;
    struct zrp_hello hello = zrp_hello_make("test", "lib", 64, 4096);
    struct zrp_welcome welcome;
    struct zrp_why why = { 0 };
    hello.major = 2;
    hello.size = 200; /* longer than what came, and of unknown meaning */
    memset(hello.name, 'x', sizeof hello.name);
    assert_int_equal(answer(&hello, &welcome, &why), ZRP_EVERSION);
    assert_non_null(strstr(why.text, "1.0"));
}

static void a_newer_minor_version_is_answered_with_ours(void **state)
{
    (void)state;
    struct zrp_hello hello = zrp_hello_make("test", "lib", 64, 4096);
    struct zrp_welcome welcome;
    hello.minor = 7;
    hello.features = UINT64_MAX;
    assert_int_equal(answer(&hello, &welcome, NULL), ZRP_OK);
    assert_int_equal(welcome.minor, ZRP_MINOR);
    assert_int_equal(welcome.features & ~(uint64_t)ZRP_FEATURES, 0);
}

static void each_wrong_field_of_a_greeting_is_refused(void **state)
{
    (void)state;
    const struct zrp_hello fine = zrp_hello_make("test", "lib", 64, 4096);
    struct zrp_hello wrong[9];
    struct zrp_welcome welcome;
    for (size_t i = 0; i < 9; i++)
        wrong[i] = fine;
    wrong[0].ring_entries = 0;
    wrong[1].ring_entries = 63;
    wrong[2].ring_entries = 8192;
    wrong[3].slab_bytes = 0;
    wrong[4].slab_bytes = 4097;
    wrong[5].slab_bytes = UINT64_C(1) << 40;
    wrong[6].zero = 1;
    memset(wrong[7].name, 'x', sizeof wrong[7].name);
    wrong[8].size = 127;
    for (size_t i = 0; i < 9; i++) {
        struct zrp_why why = { 0 };
        assert_int_not_equal(answer(wrong + i, &welcome, &why), ZRP_OK);
        assert_true(why.text[0]);
    }
    struct zrp_hello copy;
    struct zrp_layout layout;
    for (size_t bytes = 0; bytes < sizeof fine; bytes++)
        assert_int_not_equal(zrp_hello_answer(&fine, bytes, &limits, &copy, &welcome, &layout, NULL), ZRP_OK);
}

static void each_wrong_field_of_a_welcome_is_refused(void **state)
{
    (void)state;
    struct zrp_hello hello = zrp_hello_make("test", "lib", 64, 4096);
    struct zrp_welcome fine, read;
    struct zrp_layout layout;
    assert_int_equal(answer(&hello, &fine, NULL), ZRP_OK);
    const size_t offsets[] = {
        offsetof(struct zrp_welcome, ring_entries), offsetof(struct zrp_welcome, down_bytes),
        offsetof(struct zrp_welcome, up_bytes),     offsetof(struct zrp_welcome, cqe_offset),
        offsetof(struct zrp_welcome, sqe_offset),   offsetof(struct zrp_welcome, slab_offset),
        offsetof(struct zrp_welcome, slab_bytes),   offsetof(struct zrp_welcome, major),
        offsetof(struct zrp_welcome, features),     offsetof(struct zrp_welcome, sentence_offset)
    };
    for (size_t i = 0; i < sizeof offsets / sizeof offsets[0]; i++) {
        struct zrp_welcome wrong = fine;
        ((unsigned char *)&wrong)[offsets[i]] ^= 1;
        assert_int_not_equal(zrp_welcome_check(&wrong, sizeof wrong, &hello, &read, &layout, NULL), ZRP_OK);
    }
}

/* What the client must not be able to do to the daemon's area, and may do to its own. */
static void the_daemons_area_cannot_be_written_and_no_area_can_shrink(void **state)
{
    (void)state;
    struct zrp_area down, up, mapped;
    assert_int_equal(zrp_area_make(&down, ZRP_AREA_DOWN, 8192, NULL), ZRP_OK);
    assert_int_equal(zrp_area_make(&up, ZRP_AREA_UP, 8192, NULL), ZRP_OK);
    ((char *)down.at)[0] = 'd'; /* the mapping from before the seal still writes */

    assert_ptr_equal(mmap(NULL, 8192, PROT_READ | PROT_WRITE, MAP_SHARED, down.fd, 0), MAP_FAILED);
    assert_int_equal(write(down.fd, "x", 1), -1);
    assert_int_equal(ftruncate(down.fd, 4096), -1);
    assert_int_equal(ftruncate(up.fd, 4096), -1);
    assert_int_equal(ftruncate(up.fd, 16384), -1);
    assert_int_equal(fcntl(up.fd, F_ADD_SEALS, F_SEAL_WRITE), -1);

    assert_int_equal(zrp_area_map(&mapped, dup(down.fd), 8192, false, NULL), ZRP_OK);
    assert_int_equal(((char *)mapped.at)[0], 'd');
    assert_int_equal(mprotect(mapped.at, 8192, PROT_READ | PROT_WRITE), -1);
    zrp_area_close(&mapped);
    struct zrp_why why = { 0 };
    assert_int_equal(zrp_area_map(&mapped, up.fd, 4096, true, &why), ZRP_EPROTOCOL);
    int unsealed = memfd_create("unsealed", MFD_CLOEXEC);
    assert_int_equal(ftruncate(unsealed, 8192), 0);
    assert_int_equal(zrp_area_map(&mapped, unsealed, 8192, true, &why), ZRP_EPROTOCOL);
    close(unsealed);
    zrp_area_close(&down);
    zrp_area_close(&up);
    zrp_area_close(&up); /* twice is fine */
}

static uint32_t open_fds(void)
{
    uint32_t count = 0;
    for (int fd = 0; fd < 256; fd++)
        count += fcntl(fd, F_GETFD) >= 0;
    return count;
}

static void a_message_arrives_whole_with_its_descriptors(void **state)
{
    (void)state;
    int pair[2], fds[2] = { open("/dev/null", O_RDONLY), open("/dev/zero", O_RDONLY) };
    static unsigned char body[ZRP_BODY_MAX];
    static struct zrp_message message;
    memset(body, 0x5a, sizeof body);
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    assert_int_equal(zrp_receive(pair[1], &message, false, NULL), ZRP_ETIME);
    assert_int_equal(zrp_send(pair[0], ZRP_TRACE, 0, 9, ZRP_OK, body, sizeof body, fds, 2), ZRP_OK);
    assert_int_equal(zrp_receive(pair[1], &message, false, NULL), ZRP_OK);
    assert_int_equal(message.header.type, ZRP_TRACE);
    assert_int_equal(message.header.seq, 9);
    assert_int_equal(message.header.size, sizeof body);
    assert_memory_equal(message.body, body, sizeof body);
    assert_true(fcntl(message.fds[0], F_GETFD) & FD_CLOEXEC);
    zrp_message_close_fds(&message);
    close(fds[0]);
    close(fds[1]);
    close(pair[0]);
    assert_int_equal(zrp_receive(pair[1], &message, false, NULL), ZRP_EGONE);
    assert_int_equal(zrp_send(pair[1], ZRP_TRACE, 0, 9, ZRP_OK, body, 1, NULL, 0), ZRP_EGONE); /* and no SIGPIPE */
    close(pair[1]);
}

static void send_raw(int fd, const void *bytes, size_t count, const int *fds, size_t fd_count)
{
    union {
        char space[CMSG_SPACE(sizeof(int) * 16)];
        struct cmsghdr align;
    } control = { .space = { 0 } };
    struct iovec part = { .iov_base = (void *)(uintptr_t)bytes, .iov_len = count };
    struct msghdr message = { .msg_iov = &part, .msg_iovlen = 1 };
    if (fd_count) {
        message.msg_control = control.space;
        message.msg_controllen = CMSG_SPACE(sizeof(int) * fd_count);
        struct cmsghdr *rights = CMSG_FIRSTHDR(&message);
        rights->cmsg_level = SOL_SOCKET;
        rights->cmsg_type = SCM_RIGHTS;
        rights->cmsg_len = CMSG_LEN(sizeof(int) * fd_count);
        memcpy(CMSG_DATA(rights), fds, sizeof(int) * fd_count);
    }
    assert_int_equal(sendmsg(fd, &message, 0), count);
}

static void messages_that_are_none_are_refused_and_leave_no_descriptor_open(void **state)
{
    (void)state;
    int pair[2], fds[16];
    static struct zrp_message message;
    static unsigned char junk[ZRP_BODY_MAX + 4096];
    assert_int_equal(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
    for (size_t i = 0; i < 16; i++)
        fds[i] = pair[0];
    uint32_t before = open_fds();
    struct zrp_header header = { .magic = ZRP_MAGIC, .type = ZRP_HELLO, .fd_count = 4 };
    const size_t sizes[] = { 1, 31, 32, 33, 4096, sizeof junk };
    for (size_t i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
        send_raw(pair[0], junk, sizes[i], fds, 3);
        assert_int_equal(zrp_receive(pair[1], &message, false, NULL), ZRP_EPROTOCOL);
        assert_int_equal(open_fds(), before);
    }
    send_raw(pair[0], &header, sizeof header, fds, 3); /* fewer than announced */
    assert_int_equal(zrp_receive(pair[1], &message, false, NULL), ZRP_EPROTOCOL);
    send_raw(pair[0], &header, sizeof header, fds, 16); /* more than fit */
    assert_int_equal(zrp_receive(pair[1], &message, false, NULL), ZRP_EPROTOCOL);
    assert_int_equal(open_fds(), before);
    close(pair[0]);
    close(pair[1]);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(both_sides_agree_on_the_layout),
        cmocka_unit_test(another_major_version_is_refused_with_the_range_even_in_an_unknown_form),
        cmocka_unit_test(a_newer_minor_version_is_answered_with_ours),
        cmocka_unit_test(each_wrong_field_of_a_greeting_is_refused),
        cmocka_unit_test(each_wrong_field_of_a_welcome_is_refused),
        cmocka_unit_test(the_daemons_area_cannot_be_written_and_no_area_can_shrink),
        cmocka_unit_test(a_message_arrives_whole_with_its_descriptors),
        cmocka_unit_test(messages_that_are_none_are_refused_and_leave_no_descriptor_open),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
