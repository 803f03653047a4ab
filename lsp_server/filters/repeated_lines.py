"""Suggestions that only write again what stands next to the cursor."""

from lsp_server.text.context import Context


def drop_repeated_below(text: str, context: Context) -> str:
    """Drops a suggestion with which the cursor's line equals the lines right below, indentation included."""
    if context.line_after.strip():
        return text
    completed = context.line_before + text.rstrip()
    below = "\n".join(line.rstrip() for line in context.suffix.split("\n") if line.strip())
    return "" if below == completed or below.startswith(completed + "\n") else text


def drop_repeated_above(text: str, context: Context) -> str:
    """Drops a suggestion with which the cursor's line and those after it equal the lines right above.

    A line without a letter or digit may be repeated: `),`.
    """
    completed = [line.rstrip() for line in (context.line_before + text.rstrip()).split("\n")]
    if not any(char.isalnum() for line in completed for char in line):
        return text
    above = [line.rstrip() for line in context.prefix[: len(context.prefix) - len(context.line_before)].split("\n")]
    return "" if [line for line in above if line][-len(completed) :] == completed else text
