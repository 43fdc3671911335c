/* Events: recorded by many threads, in children, switched, and written to a file. The argument is its path. */
#include <corelocal/event.h>

#include "check.h"

enum { EVENTS = 5000 };

static int computed;
static uint64_t computes(void)
{
    return (uint64_t)++computed;
}

static void *records(void *number)
{
    for (int i = 0; i < EVENTS; i++)
        CORELOCAL_EVENT("test::work", CORELOCAL_U64("thread", (long)number), CORELOCAL_I64("step", -i),
                        CORELOCAL_BOOL("odd", i % 2), CORELOCAL_F64("half", i / 2.0), CORELOCAL_TEXT("what", "work"));
    return NULL;
}

static void handler(int signal)
{
    CORELOCAL_EVENT("test::signal", CORELOCAL_I64("number", signal));
}

static void of_child(void)
{
    CORELOCAL_EVENT("test::child", CORELOCAL_U64("nothing", 1));
    records(NULL);
}

int main(int count, char **arguments)
{
    CHECK(count == 2);
    char why[1200] = "", path[1024];
    snprintf(path, sizeof path, "%s", arguments[1]);
    /* Before there is a recording. */
    CORELOCAL_EVENT("test::early", CORELOCAL_U64("n", computes()));
    CORELOCAL_EVENT0("test::idle");
    CHECK(corelocal_trace_dump(path) == -ENOTCONN && corelocal_trace_switch("*", 0) == -EINVAL);
    CHECK(corelocal_trace_lost() == 0 && corelocal_trace_flush() == 0);
    CHECK(corelocal_trace_start("bogus", why, sizeof why) == -EINVAL && strstr(why, "bogus"));
    CHECK(corelocal_trace_start("bogus", why, 3) == -EINVAL && strlen(why) == 2);
    CHECK(corelocal_trace_start("bogus", NULL, 0) == -EINVAL);
    CHECK(corelocal_trace_start("on,max-bytes=64M", why, sizeof why) == 0);
    CHECK(corelocal_trace_start("on", why, sizeof why) == -EALREADY);

    signal(SIGUSR1, handler);
    handler(0);
    on_threads(records);
    CHECK(raise(SIGUSR1) == 0);
    in_child(of_child);
    static const unsigned char bytes[] = {1, 2, 0xff};
    CORELOCAL_EVENT_OF(CORELOCAL_LEVEL_WARN, "test::bytes", CORELOCAL_BYTES("raw", bytes, sizeof bytes),
                       CORELOCAL_TEXT_OF("cut", "caf\xe9 au lait", 12), CORELOCAL_TEXT("empty", ""));
    /* More fields than an event has. */
    corelocal_field many[20];
    for (int i = 0; i < 20; i++)
        many[i] = CORELOCAL_U64("same", i);
    many[3].field_type = 77;
    static corelocal_site site = {"test::many", 0, NULL, NULL};
    corelocal_trace_event(&site, many, 20);

    CHECK(corelocal_trace_switch("test::off*", 0) == 0);
    computed = 0;
    for (int i = 0; i < 5; i++)
        CORELOCAL_EVENT("test::off", CORELOCAL_U64("n", computes()));
    /* The first one registers the site. */
    CHECK(computed == 1 && corelocal_trace_switch("test::off", 1) == 1);
    CORELOCAL_EVENT("test::off", CORELOCAL_U64("n", 1));
    CHECK(corelocal_trace_lost() == 0);
    long long written = corelocal_trace_dump(path);
    CHECK(written > THREADS * EVENTS * 16);
    snprintf(why, sizeof why, "%s/none/none", path);
    CHECK(corelocal_trace_dump(why) == -ENOTDIR);
    return 0;
}
