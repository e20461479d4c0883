/* places.c: directories and the socket
 *
 * A wrong path is found when the file is read, with its line, and not in the first forward. */
#include "config/apply.h"
#include <errno.h>
#include <linux/magic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

static void check_directory(struct zr_config_report *report, const char *key, struct zr_where where, const char *path)
{
    struct stat status;
    struct statfs files;
    char clipped[400];
    zr_report_clip_to(clipped, sizeof clipped, path);
    if (stat(path, &status) != 0)
        zr_report_add(report, ZR_REMARK_ERROR, where, key, "%s: %s\n  hint: make the directory, or name another",
                      clipped, errno == ENOENT ? "there is no such directory" : strerror(errno));
    else if (!S_ISDIR(status.st_mode))
        zr_report_add(report, ZR_REMARK_ERROR, where, key, "%s: not a directory", clipped);
    else if (access(path, W_OK | X_OK) != 0)
        zr_report_add(report, ZR_REMARK_ERROR, where, key, "%s: not writable for this user: %s", clipped,
                      strerror(errno));
    else if (statfs(path, &files) == 0 && (files.f_type == TMPFS_MAGIC || files.f_type == RAMFS_MAGIC))
        zr_report_add(report, ZR_REMARK_WARNING, where, key,
                      "%s: a memory file system: what is moved there stays in host memory, and direct I/O may not work",
                      clipped);
}

static void add_path(struct zr_config *config, const char *path)
{
    for (uint32_t i = 0; i < config->nvme_path_count; i++)
        if (strcmp(config->nvme_path[i], path) == 0) return;
    strcpy(config->nvme_path[config->nvme_path_count++], path);
}

/* The drive's directories for one offload section. `wants`: its device is nvme and in effect. */
static void section_path(struct zr_config_report *report, bool wants, const char *path, const char *path_key,
                         const char *device_key, bool overruled)
{
    struct zr_config *config = &report->settings.config;
    const struct zr_value_origin *origin = zr_report_origin_const(report, path_key);
    if (!wants) {
        if (path[0])
            zr_report_add(report, ZR_REMARK_NOTE, origin->where, path_key, "without effect: the device is not nvme");
        return;
    }
    if (overruled) {
        if (path[0] && strcmp(path, report->settings.nvme_paths.path[0]) != 0)
            zr_report_add(report, ZR_REMARK_NOTE, origin->where, path_key,
                          "without effect: zerod.nvme.path goes before it");
        return;
    }
    if (!path[0]) {
        zr_report_add(
            report, ZR_REMARK_ERROR, zr_report_origin_const(report, device_key)->where, path_key,
            "missing, and the device is nvme\n  hint: give a directory on the drive here, or as zerod.nvme.path");
        return;
    }
    add_path(config, path);
    check_directory(report, path_key, origin->where, path);
}

static void drive(struct zr_config_report *report)
{
    struct zr_settings *settings = &report->settings;
    struct zr_config *config = &settings->config;
    bool optimizer = config->optimizer_device == ZR_PLACE_NVME, param = config->param_device == ZR_PLACE_NVME;
    bool own = settings->nvme_paths.count > 0;
    for (uint32_t i = 0; i < settings->nvme_paths.count; i++) {
        add_path(config, settings->nvme_paths.path[i]);
        if (config->nvme_planes)
            check_directory(report, "zerod.nvme.path", zr_report_origin_const(report, "zerod.nvme.path")->where,
                            settings->nvme_paths.path[i]);
    }
    section_path(report, optimizer, settings->optimizer_nvme_path, "zero_optimization.offload_optimizer.nvme_path",
                 "zero_optimization.offload_optimizer.device", own);
    section_path(report, param, settings->param_nvme_path, "zero_optimization.offload_param.nvme_path",
                 "zero_optimization.offload_param.device", own);
    if (!own && config->nvme_path_count) {
        settings->nvme_paths.count = config->nvme_path_count;
        memcpy(settings->nvme_paths.path, config->nvme_path, sizeof config->nvme_path);
        struct zr_value_origin *origin = zr_report_origin(report, "zerod.nvme.path");
        origin->origin = ZR_FROM_DERIVED;
        origin->from = "nvme_path of the offload sections";
    }
}

/* Which bytes go there: what the devices say, or what zerod.nvme.planes picks from it. */
static void planes(struct zr_config_report *report)
{
    struct zr_config *config = &report->settings.config;
    uint32_t allowed = (config->optimizer_device == ZR_PLACE_NVME ? ZR_NVME_LOW | ZR_NVME_M | ZR_NVME_V : 0u) |
                       (config->param_device == ZR_PLACE_NVME ? (uint32_t)ZR_NVME_WEIGHT : 0u);
    struct zr_value_origin *origin = zr_report_origin(report, "zerod.nvme.planes");
    if (!zr_report_given(report, "zerod.nvme.planes")) {
        config->nvme_planes = allowed;
        origin->origin = ZR_FROM_DERIVED;
        origin->from = "the offload devices";
        return;
    }
    /* Not an error: one file serves several placements, and --set moves a device without touching the list. */
    if (config->nvme_planes & ~allowed & ZR_NVME_WEIGHT)
        zr_report_add(report, ZR_REMARK_NOTE, origin->where, "zerod.nvme.planes",
                      "weight is listed, but zero_optimization.offload_param.device is not nvme: it stays where it is");
    if (config->nvme_planes & ~allowed & ~(uint32_t)ZR_NVME_WEIGHT)
        zr_report_add(report, ZR_REMARK_NOTE, origin->where, "zerod.nvme.planes",
                      "optimizer states are listed, but zero_optimization.offload_optimizer.device is not nvme: they stay "
                      "where they are");
    config->nvme_planes &= allowed;
    if (allowed && !config->nvme_planes)
        zr_report_add(report, ZR_REMARK_WARNING, origin->where, "zerod.nvme.planes",
                      "an offload device is nvme, and nothing is listed: nothing goes to the drive");
}

static void block_and_depth(struct zr_config_report *report)
{
    struct zr_settings *settings = &report->settings;
    struct {
        const char *own, *old;
        uint32_t own_value, old_value, fallback, *field, *own_field;
    } rows[] = {
        { "zerod.nvme.block", "aio.block_size", settings->zerod_block_bytes, settings->aio_block_bytes, 1u << 20,
          &settings->config.io_block_bytes, &settings->zerod_block_bytes },
        { "zerod.nvme.depth", "aio.queue_depth", settings->zerod_depth, settings->aio_depth, 16,
          &settings->config.io_depth, &settings->zerod_depth },
    };
    for (uint32_t i = 0; i < ZR_COUNT(rows); i++) {
        bool own = zr_report_given(report, rows[i].own), old = zr_report_given(report, rows[i].old);
        struct zr_value_origin *origin = zr_report_origin(report, rows[i].own);
        *rows[i].field = own ? rows[i].own_value : old ? rows[i].old_value : rows[i].fallback;
        *rows[i].own_field = *rows[i].field;
        if (!own && old) {
            origin->origin = ZR_FROM_DERIVED;
            origin->from = rows[i].old;
        }
        if (own && old && rows[i].own_value != rows[i].old_value)
            zr_report_add(report, ZR_REMARK_NOTE, zr_report_origin_const(report, rows[i].old)->where, rows[i].old,
                          "without effect: %s goes before it", rows[i].own);
    }
    const char *block_key = zr_report_given(report, "zerod.nvme.block") ? "zerod.nvme.block" : "aio.block_size";
    if (settings->config.io_block_bytes % 4096)
        zr_report_add(report, ZR_REMARK_ERROR, zr_report_origin_const(report, block_key)->where, block_key,
                      "%u is not a multiple of 4096, the block of direct I/O", settings->config.io_block_bytes);
}

/* The first variable that is set, with `tail` behind its value; else the last resort. */
static void default_place(struct zr_config_report *report, const char *key, char *out, size_t room,
                          const char *service_variable, const char *service_tail, const char *system_path,
                          const char *user_variable, const char *user_tail, const char *last_resort)
{
    struct zr_value_origin *origin = zr_report_origin(report, key);
    const char *service = getenv(service_variable), *user = getenv(user_variable);
    char fallback[64];
    int wrote;
    if (zr_report_given(report, key)) return;
    if (service && service[0] == '/') {
        wrote = snprintf(out, room, "%.*s%s", (int)strcspn(service, ":"), service, service_tail);
        *origin = (struct zr_value_origin){ .origin = ZR_FROM_ENVIRONMENT, .from = service_variable };
    } else if (geteuid() == 0) {
        wrote = snprintf(out, room, "%s", system_path);
    } else if (user && user[0] == '/') {
        wrote = snprintf(out, room, "%s%s", user, user_tail);
        *origin = (struct zr_value_origin){ .origin = ZR_FROM_ENVIRONMENT, .from = user_variable };
    } else {
        snprintf(fallback, sizeof fallback, "/tmp/zerod-%u", (unsigned)geteuid());
        wrote = snprintf(out, room, "%s%s", fallback, last_resort);
    }
    if (wrote < 0 || (size_t)wrote >= room)
        zr_report_add(report, ZR_REMARK_ERROR, (struct zr_where){ 0 }, key,
                      "the path that the environment gives is longer than %zu bytes\n  hint: give this key", room - 1);
}

void zr_rules_places(struct zr_config_report *report)
{
    struct zr_config *config = &report->settings.config;
    planes(report);
    drive(report);
    block_and_depth(report);
    default_place(report, "zerod.socket", config->socket, sizeof config->socket, "RUNTIME_DIRECTORY", "/zerod.sock",
                  "/run/zerod/zerod.sock", "XDG_RUNTIME_DIR", "/zerod/zerod.sock", "/zerod.sock");
    const char *home = getenv("XDG_STATE_HOME");
    bool xdg = home && home[0] == '/';
    default_place(report, "zerod.state_dir", config->state_dir, sizeof config->state_dir, "STATE_DIRECTORY", "",
                  "/var/lib/zerod", xdg ? "XDG_STATE_HOME" : "HOME", xdg ? "/zerod" : "/.local/state/zerod", "/state");
    if (config->model_path[0] && config->model_config_json[0])
        zr_report_add(report, ZR_REMARK_ERROR, zr_report_origin_const(report, "model.config")->where, "model.config",
                      "model.path is given too: one of them says what the model is");
    if (config->update_chunk % 256)
        zr_report_add(report, ZR_REMARK_ERROR, zr_report_origin_const(report, "zerod.optimizer.chunk")->where,
                      "zerod.optimizer.chunk", "%llu is not a multiple of 256",
                      (unsigned long long)config->update_chunk);
}
