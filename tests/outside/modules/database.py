"""Tools of one object, which share what it holds."""

from toolcrib import tool


class DatabaseTools:
    def __init__(self, connection_string: str, rows=()):
        self.connection_string, self.rows = connection_string, list(rows)

    @tool
    def insert(self, row: str) -> int:
        """Adds a row.

        Args:
            row: What it holds.
        """
        self.rows.append(row)
        return len(self.rows)

    @tool
    def select(self) -> list:
        """All rows."""
        return self.rows

    @tool
    async def connection(self) -> dict:
        """Where the rows are."""
        return {"connection": self.connection_string}

    def plain(self, text: str) -> str:
        """A method that only the manifest makes a tool."""
        return f"{text} of {len(self.rows)}"

    def _secret(self) -> str:
        """Is no tool."""
        return self.connection_string
