"""Tools of agent frameworks: each adapter makes a `Tool` of the framework's own object.

`finding` imports an adapter when it finds such an object. So the worker never imports a framework itself.
"""
