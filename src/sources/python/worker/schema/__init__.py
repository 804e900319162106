"""JSON Schemas from type hints, and converters from JSON values to the hinted types. `builder` is the entry."""
