"""Tools of one object."""

from strands import tool


class Counter:
    def __init__(self, start: int = 0):
        self.value = start

    @tool
    def count(self, by: int = 1) -> int:
        """Counts.

        Args:
            by: How far.
        """
        self.value += by
        return self.value

    @tool
    async def value_now(self) -> int:
        """The value."""
        return self.value
