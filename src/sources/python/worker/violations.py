"""Violations: the reasons why a value does not fit its type hint, with their places in the value."""


class InvalidValue(Exception):
    """A value that does not fit its type hint. `violations`: [(JSON Pointer, message)]."""

    def __init__(self, violations):
        super().__init__(violations)
        self.violations = [("", violations)] if isinstance(violations, str) else violations

    def at_key(self, key):
        """The violations as those of the object or array that has the value at `key`."""
        token = str(key).replace("~", "~0").replace("/", "~1")
        return [(f"/{token}{pointer}", message) for pointer, message in self.violations]


def pydantic_violations(error):
    """[(JSON Pointer, message)] of the error if it or its cause is a ValidationError of pydantic; else None."""
    for candidate in (error, error.__cause__):
        if type(candidate).__name__ == "ValidationError" and callable(getattr(candidate, "errors", None)):
            found = []
            for item in candidate.errors():
                invalid = InvalidValue(item["msg"])
                for key in reversed(item["loc"]):
                    invalid = InvalidValue(invalid.at_key(key))
                found += invalid.violations
            return found
    return None
