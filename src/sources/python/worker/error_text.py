"""Exceptions as text."""


def message_of(error):
    """The text of an exception; empty if its own `__str__` fails."""
    try:
        return str(error)
    except Exception:
        return ""


MAX_REASON_CHARS = 500


def first_line_of(error):
    """The first line of an exception's text, or else the name of its class.

    The first line of some libraries ends with a colon, and the reason follows it. So it is part of the text, on one line.
    """
    text = message_of(error).strip() or type(error).__name__
    first = text.split("\n")[0]
    return " ".join(text.split())[:MAX_REASON_CHARS] if first.endswith(":") else first


def format_error(error):
    """The text of an exception for a model."""
    message = message_of(error)
    if type(error) is ValueError and message:
        return f"Error: {message}"
    return f"Error: {type(error).__name__}: {message}" if message else f"Error: {type(error).__name__}"
