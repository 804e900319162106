"""Exceptions as text."""


def message_of(error):
    """The text of an exception; empty if its own `__str__` fails."""
    try:
        return str(error)
    except Exception:
        return ""


def first_line_of(error):
    """The first line of an exception's text, or else the name of its class."""
    return (message_of(error).strip() or type(error).__name__).split("\n")[0]


def format_error(error):
    """The text of an exception for a model."""
    message = message_of(error)
    if type(error) is ValueError and message:
        return f"Error: {message}"
    return f"Error: {type(error).__name__}: {message}" if message else f"Error: {type(error).__name__}"
