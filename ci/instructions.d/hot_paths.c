/* The same operations as in crates/corelocal/examples/hot_paths.rs, as one would write them in C with inline assembly on
 * the area that glibc registers: for a count of instructions. An index is read in the section, and a thread without a
 * registration is noticed. */
#include <stdint.h>

extern const long __rseq_offset;

/* Slots of 1 MiB each, below `base`, as in the library; `offsets` has -(id + 1) << 20 for each id that has one. */
uint64_t c_offsets[8192];
char *c_base;

enum { CPU_ID = 4, RSEQ_CS = 8, MM_CID = 24 };

#if defined(__aarch64__)

static inline char *area(void)
{
    return (char *)__builtin_thread_pointer() + __rseq_offset;
}

/* Announces the section, and finds the slot of the id in %[slot]; leaves for %l[cold]. */
#define BEGIN                                                                                                          \
    ".pushsection __rseq_cs, \"aw\"\n.balign 32\n3: .word 0, 0\n.xword 4f, 5f - 4f, 6f\n.popsection\n"                 \
    ".pushsection __rseq_cs_ptr_array, \"aw\"\n.xword 3b\n.popsection\n"                                               \
    "adrp x16, 3b\nadd x16, x16, :lo12:3b\nstr x16, [%[area], #8]\n"                                                   \
    "4: ldr w16, [%[area], #4]\ncmp w16, #0\nb.lt %l[cold]\n"                                                          \
    "ldr w16, [%[area], #24]\nldr x16, [%[offsets], x16, lsl #3]\nldr x17, [%[base]]\n"                                \
    "adds x16, x16, x17\nb.cc %l[cold]\n"
#define END                                                                                                            \
    "5:\n.pushsection __rseq_failure, \"ax\"\n.inst 0xd428bc00\n6: b %l[cold]\n.popsection\n"

extern void c_cold(void);

void c_counter_add(int64_t n)
{
    __asm__ goto(BEGIN "ldr x17, [x16]\nadd x17, x17, %[n]\nstr x17, [x16]\n" END
                 :
                 : [area] "r"(area()), [offsets] "r"(c_offsets), [base] "r"(&c_base), [n] "r"(n)
                 : "x16", "x17", "memory", "cc"
                 : cold);
    return;
cold:
    c_cold();
}

void c_stack_push(uint64_t item)
{
    __asm__ goto(BEGIN "ldr x17, [x16]\ncmp x17, #64\nb.hs %l[cold]\nadd x15, x16, x17, lsl #3\nstr %[item], [x15, #8]\n"
                       "add x17, x17, #1\nstr x17, [x16]\n" END
                 :
                 : [area] "r"(area()), [offsets] "r"(c_offsets), [base] "r"(&c_base), [item] "r"(item)
                 : "x15", "x16", "x17", "memory", "cc"
                 : cold);
    return;
cold:
    c_cold();
}

/* CLOCK_MONOTONIC by the vDSO's data, as the kernel's own function reads it: no other way is chosen, and nothing compared. */
struct data {
    uint32_t sequence, mode;
    uint64_t last, mask;
    uint32_t multiplier, shift;
    struct {
        uint64_t seconds, fraction;
    } times[12];
};
struct data *c_data;

uint64_t c_monotonic(void)
{
    const struct data *data = c_data;
    for (;;) {
        uint32_t sequence = __atomic_load_n(&data->sequence, __ATOMIC_ACQUIRE);
        uint64_t counter, nothing;
        if (sequence & 1)
            continue;
        if (data->mode == 0)
            return 0;
        __asm__ volatile("isb\nmrs %0, cntvct_el0\neor %1, %0, %0\nadd %1, sp, %1\nldr xzr, [%1]\n"
                         : "=&r"(counter), "=&r"(nothing)
                         :
                         : "memory");
        uint64_t nanos = data->times[1].fraction + ((counter - data->last) & data->mask) * data->multiplier;
        uint64_t time = data->times[1].seconds * 1000000000 + (nanos >> data->shift);
        __atomic_thread_fence(__ATOMIC_ACQUIRE);
        if (__atomic_load_n(&data->sequence, __ATOMIC_RELAXED) == sequence)
            return time;
    }
}

uint64_t c_ticks(void)
{
    uint64_t counter;
    __asm__ volatile("mrs %0, cntvct_el0" : "=r"(counter));
    return counter;
}

uint32_t c_cid(void)
{
    return *(volatile uint32_t *)(area() + MM_CID);
}

#endif
