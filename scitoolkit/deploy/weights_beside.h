/* Include STK_FILE in the assembler, as compilers need a minute and gigabytes for large literals. */
#define STK_TEXT_(x) #x
#define STK_TEXT(x) STK_TEXT_(x)
#ifdef __APPLE__
#define STK_SECTION ".pushsection __TEXT,__const\n.private_extern "
#else
#define STK_SECTION ".pushsection .rodata\n.hidden "
#endif
#define STK_SYMBOL STK_TEXT(__USER_LABEL_PREFIX__) STK_NAME
asm(STK_SECTION STK_SYMBOL "\n.globl " STK_SYMBOL "\n.balign 64\n" STK_SYMBOL
    ":\n.incbin \"" STK_FILE "\"\n.balign 64\n.popsection\n");
