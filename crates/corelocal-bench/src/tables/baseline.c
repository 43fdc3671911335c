/*
 * The per-core increment as one would write it by hand in C: what the counter tables compare the
 * Rust library with. x86-64 Linux; GCC 8 or Clang 9 and later.
 *
 * Invariants:
 * - The id is read inside the critical section, which the kernel restarts when the thread loses
 *   its cpu; the addition to memory is its last instruction and the only store that counts.
 * - The section begins right after the store that announces it, and each retry stores anew: a
 *   signal in between withdraws the announcement.
 * - Labels are numeric and local, so that each inlined copy has a descriptor of its own.
 *
 * Offsets are those of struct rseq in include/uapi/linux/rseq.h: cpu_id 4, rseq_cs 8, mm_cid 24.
 */
#include <stddef.h>
#include <stdint.h>

/* Slots of neighbouring ids lie 64 KiB apart. */
#define SLOT_SHIFT "16"
#define IN_TURN 8

enum outcome { COMMITTED, ABORTED, UNREGISTERED };

#define DEFINE_ADD(name, field)                                                                    \
	static inline __attribute__((always_inline)) enum outcome add_##name(                      \
		ptrdiff_t area, int64_t *word, int64_t n)                                          \
	{                                                                                          \
		__asm__ goto(                                                                      \
			".pushsection __rseq_cs, \"aw\", @progbits\n\t"                            \
			".balign 32\n"                                                             \
			"3:\t.long 0, 0\n\t"                                                       \
			".quad 4f, 5f - 4f, 6f\n\t"                                                \
			".popsection\n\t"                                                          \
			".pushsection __rseq_cs_ptr_array, \"aw\", @progbits\n"                    \
			"7:\t.quad 3b\n\t"                                                         \
			".popsection\n\t"                                                          \
			".reloc 0, R_X86_64_NONE, 7b\n\t"                                          \
			".pushsection __rseq_failure, \"ax\", @progbits\n\t"                       \
			".byte 0x0f, 0xb9, 0x3d\n\t"                                               \
			".long 0x53053053\n"                                                       \
			"6:\tjmp %l[aborted]\n\t"                                                  \
			".popsection\n\t"                                                          \
			"leaq 3b(%%rip), %%rax\n\t"                                                \
			"movq %%rax, %%fs:8(%[area])\n"                                            \
			"4:\tcmpl $0, %%fs:4(%[area])\n\t"                                         \
			"jl %l[unregistered]\n\t"                                                  \
			"movl %%fs:" field "(%[area]), %%eax\n\t"                                  \
			"shlq $" SLOT_SHIFT ", %%rax\n\t"                                          \
			"addq %[n], (%[word], %%rax)\n"                                            \
			"5:"                                                                       \
			: /* asm goto has no outputs */                                            \
			: [area] "r"(area), [word] "r"(word), [n] "er"(n)                          \
			: "rax", "memory", "cc"                                                    \
			: aborted, unregistered);                                                  \
		return COMMITTED;                                                                  \
	aborted:                                                                                   \
		return ABORTED;                                                                    \
	unregistered:                                                                              \
		return UNREGISTERED;                                                               \
	}                                                                                          \
                                                                                                   \
	/* Adds 1 `times` times; ends early in a thread that is not registered. */                 \
	void corelocal_c_add_##name(ptrdiff_t area, int64_t *word, uint64_t times)                 \
	{                                                                                          \
		while (times > 0) {                                                                \
			enum outcome outcome = add_##name(area, word, 1);                          \
			if (outcome == UNREGISTERED)                                               \
				return;                                                            \
			if (outcome == COMMITTED)                                                  \
				times--;                                                           \
		}                                                                                  \
	}                                                                                          \
                                                                                                   \
	/* The same to each of IN_TURN neighbouring words in turn. */                              \
	void corelocal_c_add_in_turn_##name(ptrdiff_t area, int64_t *words, uint64_t times)        \
	{                                                                                          \
		for (; times > 0; times--) {                                                       \
			_Pragma("GCC unroll 8")                                                    \
			for (int nth = 0; nth < IN_TURN; nth++) {                                  \
				enum outcome outcome;                                              \
				do {                                                               \
					outcome = add_##name(area, words + nth, 1);                \
					if (outcome == UNREGISTERED)                               \
						return;                                            \
				} while (outcome != COMMITTED);                                    \
			}                                                                          \
		}                                                                                  \
	}                                                                                          \
                                                                                                   \
	/* Reads so many times, with 1 added before and after it; how often the value was right. */ \
	uint64_t corelocal_c_read_##name(ptrdiff_t area, int64_t *words, uint64_t **at,            \
					 uint64_t expected, uint64_t times)                        \
	{                                                                                          \
		uint64_t right = 0;                                                                \
		for (; times > 0; times--) {                                                       \
			enum outcome outcome;                                                      \
			do {                                                                       \
				outcome = add_##name(area, words, 1);                              \
				if (outcome == UNREGISTERED)                                       \
					return right;                                              \
			} while (outcome != COMMITTED);                                            \
			right += *__atomic_load_n(at, __ATOMIC_RELAXED) == expected;               \
			do {                                                                       \
				outcome = add_##name(area, words + 1, 1);                          \
				if (outcome == UNREGISTERED)                                       \
					return right;                                              \
			} while (outcome != COMMITTED);                                            \
		}                                                                                  \
		return right;                                                                      \
	}

DEFINE_ADD(cpu_id, "4")
DEFINE_ADD(mm_cid, "24")
