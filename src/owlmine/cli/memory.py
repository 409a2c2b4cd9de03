"""The error message when memory runs out."""

from __future__ import annotations

# How to need less memory, by command.
_LESS = {
    "data": "for text, a larger --min-df or --hash-bits gives fewer features",
    "train": "a smaller --dim, --pool or --batch-size needs less memory",
    "compare": "a smaller --dim, --pool or --batch-size needs less memory",
    "predict": "fewer classes per query (-k) need less memory",
}
# In PyTorch's RuntimeErrors, on a GPU and on a CPU; NumPy and Python raise MemoryError.
_WORDS = ("out of memory", "not enough memory", "can't allocate memory")
_MAX_REASON = 200


def memory_message(error: Exception, arguments: list[str]) -> str | None:
    """The message for an out-of-memory error; None for any other error."""
    if not isinstance(error, MemoryError) and not any(word in str(error) for word in _WORDS):
        return None
    verb = next((argument for argument in arguments if not argument.startswith("-")), "")
    reason = " ".join(str(error).partition("\n")[0].split())[:_MAX_REASON]
    text = f"owlmine {verb} ran out of memory" + (f" ({reason})" if reason else "")
    return text + (f"; {_LESS[verb]}" if verb in _LESS else "")
