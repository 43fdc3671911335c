/* Adds one to the word of this cpu. A signal or a migration in between makes it begin again. The lock prefix is a fault.
   words: 128 bytes for each cpu; area: __rseq_offset, where libc has registered the thread's rseq area. */
void count(long *words, long area)
{
    __asm__ volatile("0: lea 3f(%%rip), %%rax; mov %%rax, %%fs:8(%1);"
                     "1: mov %%fs:4(%1), %%eax; shl $7, %%rax; lock addq $1, (%0, %%rax); 2:;"
                     ".pushsection .text.unlikely; .byte 0x0f, 0xb9, 0x3d; .long 0x53053053; 4: jmp 0b; .popsection;"
                     ".pushsection __rseq_cs, \"aw\"; .balign 32; 3: .long 0, 0; .quad 1b, 2b - 1b, 4b; .popsection;"
                     ".pushsection __rseq_cs_ptr_array, \"aw\"; .quad 3b; .popsection"
                     : : "r"(words), "r"(area) : "rax", "memory", "cc");
}
