"""The markers of fill-in-the-middle prompts, by the family of models that was trained on them.

Each is the marker before the text before the cursor, that before the text after it, and, in most families, that before
the middle.
"""

QWEN = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")  # CodeGemma has the same
STARCODER = ("<fim_prefix>", "<fim_suffix>", "<fim_middle>")  # and Granite, StableCode, Mellum
SANTACODER = ("<fim-prefix>", "<fim-suffix>", "<fim-middle>")
DEEPSEEK = ("<｜fim▁begin｜>", "<｜fim▁hole｜>", "<｜fim▁end｜>")
CODELLAMA = ("▁<PRE>", "▁<SUF>", "▁<MID>")
SEED_CODER = ("<[fim-prefix]>", "<[fim-suffix]>", "<[fim-middle]>")  # and Zeta 2
AIXCODER = ("▁<AIX-SPAN-PRE>", "▁<AIX-SPAN-POST>", "▁<AIX-SPAN-MIDDLE>")
CODESTRAL = ("[PREFIX]", "[SUFFIX]")
CODELLAMA_WRITTEN = ("<PRE>", "<SUF>", "<MID>")  # with blanks around them, or without

# As clients write them into a prompt.
WRITTEN = (
    QWEN,
    STARCODER,
    SANTACODER,
    DEEPSEEK,
    SEED_CODER,
    ("<|code_prefix|>", "<|code_suffix|>", "<|code_middle|>"),
    CODELLAMA_WRITTEN,
    AIXCODER,
    CODESTRAL,
)

# What clients write for models that rewrite a region or chat and would be taken for text or files, by the name of the
# format: all of these are in a prompt.
FOREIGN = {
    "Sweep": ("<|file_sep|>current/", "<|file_sep|>updated/"),
    "hole filling": ("{{FILL_HERE}}", "<COMPLETION>"),
    "filling a blank": ("[BLANK]", "Fill in the blank to complete the code block."),
}
