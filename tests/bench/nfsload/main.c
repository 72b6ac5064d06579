/* The command line: reads the options, starts a thread for each connection, prints the result. */
#include <getopt.h>
#include <pthread.h>
#include <signal.h>
#include <stdio.h>

#include "load.h"

struct options options = {
    .connections = 1,
    .depth = 1,
    .file_bytes = 64 * MIB,
    .seed = 1,
    .directory = "nfsload",
    .prefix = "f",
    .to = "t",
};

static const char usage[] =
    "usage: nfsload HOST PORT EXPORT WORKLOAD [options]\n"
    "workloads: write read randwrite randread append clear create truncate rename unlink\n"
    "           lookup stat list save mixed torture refill\n"
    "  --connections N  clients, each with a connection, a client id and a session (1)\n"
    "  --depth D        requests in flight on each connection, up to 64 (1)\n"
    "  --size BYTES     of one READ, WRITE or page of a listing\n"
    "  --file BYTES     of each connection's file (64 MiB)\n"
    "  --count N        operations of all connections together; list: entries expected\n"
    "  --seconds S      stop after so long, too\n"
    "  --dir PATH       below EXPORT, made when missing (nfsload)\n"
    "  --apart          each connection in a directory of its own below --dir\n"
    "  --prefix TEXT    of names (f);  --to TEXT: of new names, rename (t)\n"
    "  --uid N          of the user and the group that the calls are made as (0)\n"
    "  --commit         append: WRITE and COMMIT instead of WRITE with FILE_SYNC\n"
    "  --log DIR        torture: where each writer's log goes\n"
    "  --seed N         torture, refill: of the random choices (1)\n"
    "  --pause S        refill: seconds after each save (0)\n"
    "  --verify         read, randread: compare with what write has written, with the same size\n";

static const struct workload *workload;
static pthread_barrier_t ready;
static struct fh directory;

static const struct workload *find_workload(const char *name)
{
    const struct workload *const groups[] = {data_workloads, name_workloads, save_workloads,
                                             mixed_workloads, torture_workloads, refill_workloads};

    for (size_t group = 0; group < sizeof groups / sizeof *groups; group++)
        for (const struct workload *one = groups[group]; one->name; one++)
            if (!strcmp(one->name, name))
                return one;
    die("there is no workload %s\n%s", name, usage);
}

static uint64_t number(const char *option, const char *text, uint64_t low, uint64_t high)
{
    char *end;
    uint64_t value = strtoull(text, &end, 10);

    if (*end || value < low || value > high)
        die("--%s %s: must be a number from %llu to %llu", option, text, (unsigned long long)low,
            (unsigned long long)high);
    return value;
}

static void read_options(int argc, char **argv)
{
    static const struct option known[] = {
        {"connections", 1, 0, 'n'}, {"depth", 1, 0, 'd'},   {"size", 1, 0, 's'},
        {"file", 1, 0, 'f'},        {"count", 1, 0, 'c'},   {"seconds", 1, 0, 't'},
        {"dir", 1, 0, 'p'},         {"prefix", 1, 0, 'x'},  {"to", 1, 0, 'o'},
        {"commit", 0, 0, 'm'},      {"verify", 0, 0, 'v'},  {"apart", 0, 0, 'a'},
        {"log", 1, 0, 'l'},         {"seed", 1, 0, 'e'},
        {"uid", 1, 0, 'u'},         {"pause", 1, 0, 'w'},
        {0},
    };
    int found, index = 0;

    while ((found = getopt_long(argc, argv, "", known, &index)) != -1) {
        const char *name = known[index].name;

        switch (found) {
        case 'n': options.connections = (unsigned)number(name, optarg, 1, 4096); break;
        case 'd': options.depth = (unsigned)number(name, optarg, 1, SLOTS_MAX); break;
        case 's': options.size_bytes = (uint32_t)number(name, optarg, 32, 8 * MIB); break;
        case 'f': options.file_bytes = number(name, optarg, 32, 1ull << 50); break;
        case 'c': options.count = number(name, optarg, 1, 1ull << 40); break;
        case 't': options.seconds = atof(optarg); break;
        case 'p': options.directory = optarg; break;
        case 'x': options.prefix = optarg; break;
        case 'o': options.to = optarg; break;
        case 'l': options.log = optarg; break;
        case 'e': options.seed = number(name, optarg, 0, UINT64_MAX); break;
        case 'u': rpc_user = (uint32_t)number(name, optarg, 0, UINT32_MAX); break;
        case 'w': options.pause_seconds = atof(optarg); break;
        case 'm': options.commit = true; break;
        case 'a': options.apart = true; break;
        case 'v': options.verify = true; break;
        default: die("%s", usage);
        }
    }
    if (argc - optind != 4)
        die("%s", usage);
    options.host = argv[optind];
    options.port = argv[optind + 1];
    options.export = argv[optind + 2];
    options.workload = argv[optind + 3];
    workload = find_workload(options.workload);
    if (!workload->bounded && !options.count && options.seconds <= 0)
        die("%s needs --count or --seconds", workload->name);
    if (!options.size_bytes)
        options.size_bytes = workload->size_bytes;
    if (options.size_bytes % 4)
        die("--size must be a multiple of 4");
}

/* Follow a path from a directory, or from the root, to *at. With make, make what is missing. */
static void walk(struct client *client, struct fh *at, bool from_root, const char *path, bool make)
{
    char *copy = strdup(path), *rest = NULL;

    for (char *name = strtok_r(copy, "/", &rest); name; name = strtok_r(NULL, "/", &rest)) {
        struct fh parent = *at;
        struct attributes attributes;
        const struct fh *start = from_root ? NULL : &parent;
        uint32_t status = call_lookup(client, start, name, at, &attributes);

        if (status == NFS4ERR_NOENT && make) {
            require(call_mkdir(client, start, name), "CREATE", name);
            status = call_lookup(client, start, name, at, &attributes);
        }
        require(status, "LOOKUP", name);
        from_root = false;
    }
    free(copy);
}

static void *work(void *context)
{
    struct worker *worker = context;
    struct client *client = &worker->client;

    client_connect(client, options.host, options.port, client->number, options.depth);
    if (options.apart) {
        char name[16];

        snprintf(name, sizeof name, "c%u", client->number);
        walk(client, &worker->directory, false, name, true);
    }
    if (options.size_bytes) {
        /* The block begins on a page boundary, as the pages of a page cache do. */
        if (posix_memalign((void **)&worker->block, 4096, options.size_bytes))
            die("out of memory");
        block_fill(worker->block, options.size_bytes);
    }
    if (workload->open)
        workload->open(worker);
    pthread_barrier_wait(&ready);
    client->stats.started_ns = now_ns();
    if (options.seconds > 0)
        worker->deadline_ns = client->stats.started_ns + (uint64_t)(options.seconds * 1e9);
    workload->run(worker);
    client->stats.ended_ns = now_ns();
    if (workload->close)
        workload->close(worker);
    client_disconnect(client);
    return NULL;
}

static void prepare(void)
{
    struct client *client = calloc(1, sizeof *client);

    if (!client)
        die("out of memory");
    client_connect(client, options.host, options.port, UINT32_MAX, 1);
    walk(client, &directory, true, options.export, false);
    walk(client, &directory, false, options.directory, true);
    client_disconnect(client);
    free(client->rpc.buffer);
    free(client);
}

int main(int argc, char **argv)
{
    pthread_t *threads;
    struct stats **all;

    signal(SIGPIPE, SIG_IGN);
    read_options(argc, argv);
    prepare();
    threads = calloc(options.connections, sizeof *threads);
    all = calloc(options.connections, sizeof *all);
    if (!threads || !all || pthread_barrier_init(&ready, NULL, options.connections))
        die("out of memory");
    for (unsigned i = 0; i < options.connections; i++) {
        struct worker *worker = calloc(1, sizeof *worker);

        if (!worker)
            die("out of memory");
        worker->client.number = i;
        worker->directory = directory;
        worker->deadline_ns = UINT64_MAX;
        worker->random = 0x9e3779b97f4a7c15ull * (i + 1);
        all[i] = &worker->client.stats;
        if (pthread_create(&threads[i], NULL, work, worker))
            die("cannot start a thread");
    }
    for (unsigned i = 0; i < options.connections; i++)
        pthread_join(threads[i], NULL);
    return stats_print(workload->name, all, options.connections) ? 0 : 1;
}
