"""A typed function as a tool: its schema, and its call from arguments."""

import dataclasses
import functools
import inspect
import json
import typing

from .docstrings import read_docstring
from .schema.builder import SchemaBuilder
from .schema.converters import convert_items
from .schema.hints import UnsupportedHint, is_annotated, is_field, is_pydantic_model, is_typed_dict, resolve_hint
from .schema.json_schema import MISSING, add_default, unwrap_schema
from .schema.pydantic_types import from_pydantic_type
from .signatures import function_scope, is_async_function, is_context_hint, read_signature, unwrap_partial
from .tools import Tool
from .violations import InvalidValue


class Parameter:
    """One parameter of a function: its public name, its converter and its default."""

    __slots__ = ("name", "kind", "convert", "default")

    def __init__(self, name, kind, convert, default):
        self.name, self.kind, self.convert, self.default = name, kind, convert, default


class Function:
    """A typed function as a tool: its description, its schemas, and its call. A framework may have a subclass with other rules."""

    keeps_dicts = False  # whether nested models and dataclasses reach the function as dicts

    def __init__(self, function, options, name=None):
        self.function, self.options = function, options
        self.name = options.name or name or getattr(function, "__name__", "")
        self.scope = function_scope(function)
        self.signature = read_signature(function)
        self.context_name = None  # the parameter that takes the ToolContext
        self.agent_name = None  # the parameter that takes the agent
        self.build_schemas()
        kinds = {parameter.kind for parameter in self.parameters}
        # The fast path: all arguments are passed by keyword, and Python fills in the defaults.
        self.calls_by_keyword = not kinds & {
            inspect.Parameter.POSITIONAL_ONLY,
            inspect.Parameter.VAR_POSITIONAL,
            inspect.Parameter.VAR_KEYWORD,
        }
        self.calls_by_keyword = self.calls_by_keyword and not any(parameter.default is not MISSING for parameter in self.parameters)
        self.names = {parameter.name for parameter in self.parameters}
        rest = inspect.Parameter.VAR_KEYWORD  # its values have other names than the parameter
        self.converters = [
            (parameter.name, parameter.convert) for parameter in self.parameters if parameter.convert and parameter.kind is not rest
        ]

    def build_schemas(self):
        """Sets the description, the parameters and the schemas."""
        options = self.options
        description, parameter_docs = self.read_docs(inspect.getdoc(unwrap_partial(self.function)))
        self.description = options.description or description or self.name
        builder = SchemaBuilder(self.scope, as_dicts=self.keeps_dicts)
        properties, required, additional, self.parameters = {}, [], False, []
        for name, parameter in self.signature.parameters.items():
            if self.takes_hidden(parameter):
                continue
            try:
                schema, convert, is_required, make_default = self.parameter_schema(parameter, builder)
            except UnsupportedHint as bad:
                raise UnsupportedHint(f"parameter '{name}': {bad}") from None
            has_own_description = is_annotated(self.resolve_annotation(parameter.annotation)) or is_field(parameter.default)
            if name in parameter_docs and not (has_own_description and "description" in schema):
                schema["description"] = parameter_docs[name]
            elif self.missing_description(name):
                schema.setdefault("description", self.missing_description(name))
            self.parameters.append(Parameter(name, parameter.kind, convert, make_default))
            if parameter.kind is parameter.VAR_KEYWORD:
                additional = {key: value for key, value in schema.items() if key != "description"} or True
                continue
            properties[name] = schema
            if is_required:
                required.append(name)
        self.input_schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": additional}
        if builder.defs:
            self.input_schema["$defs"] = builder.defs
        if options.input_schema is not None:
            self.input_schema = unwrap_schema(options.input_schema)
        self.output_schema = options.output_schema if options.output_schema is not None else self.derive_output_schema()

    def read_docs(self, doc):
        """(description, {parameter: description}) of the docstring."""
        return read_docstring(doc)

    def missing_description(self, name):
        """The description of a parameter that has none, or None."""
        return None

    def takes_hidden(self, parameter):
        """Whether a model cannot set the parameter, because it takes the context."""
        if parameter.name not in (self.context_option(), "tool_context") and not is_context_hint(parameter.annotation, self.scope):
            return False
        self.context_name = parameter.name
        return True

    def context_option(self):
        """The name of the parameter that the decorator's `context` selects; False without this option."""
        return "tool_context" if self.options.context is True else self.options.context

    def parameter_schema(self, parameter, builder):
        """(schema, converter, whether it is required, a function that makes its default)."""
        hint, default = parameter.annotation, parameter.default
        if is_field(default):  # x: int = Field(default=3, ge=0)
            schema, convert = from_pydantic_type(builder, typing.Annotated[self.resolve_annotation(hint), default])
            if default.is_required():
                return schema, convert, True, MISSING
            schema.pop("default", None)  # pydantic writes it even if it does not fit
            if not default.default_factory:
                add_default(schema, default.get_default(), builder.defs)
            return schema, convert, False, functools.partial(default.get_default, call_default_factory=True)
        schema, convert = builder.from_hint(hint)
        if parameter.kind is parameter.VAR_POSITIONAL:
            schema = {"type": "array", "items": schema} if schema else {"type": "array"}
            return schema, convert and (lambda values: convert_items(values, [convert] * len(values))), False, MISSING
        add_default(schema, default, builder.defs)
        return schema, convert, default is parameter.empty, MISSING

    def resolve_annotation(self, hint):
        """The hint, resolved if it is a string that can be resolved."""
        try:
            return resolve_hint(hint, self.scope) if isinstance(hint, str) else hint
        except UnsupportedHint:
            return hint

    def derive_output_schema(self):
        """The schema of the return hint, if the hint is an object with known fields."""
        hint = self.resolve_annotation(self.signature.return_annotation)
        if not (is_typed_dict(hint) or is_pydantic_model(hint) or (dataclasses.is_dataclass(hint) and isinstance(hint, type))):
            return None
        try:
            builder = SchemaBuilder(self.scope, output=True)
            root, _ = builder.from_hint(hint)
        except UnsupportedHint:
            return None
        name = root["$ref"].rsplit("/", 1)[-1]
        schema = dict(builder.defs[name])
        if json.dumps(builder.defs).find(f'"#/$defs/{name}"') < 0:
            del builder.defs[name]
        return {**schema, "$defs": builder.defs} if builder.defs else schema

    def start(self, arguments, call):
        """Converts the arguments and calls the function. Raises InvalidValue if they do not fit the type hints."""
        if self.calls_by_keyword and arguments.keys() <= self.names:
            if self.converters:
                arguments = self.convert_arguments(arguments)
            if self.context_name is None and self.agent_name is None:
                try:
                    return self.function(**arguments)
                except TypeError:
                    self.check_required(arguments)
                    raise
            positional = ()
        else:
            positional, arguments = self.arrange_arguments(self.convert_arguments(arguments))
        self.check_required(arguments, positional)
        keywords = dict(arguments)
        if self.context_name is not None:
            if self.signature.parameters[self.context_name].kind is inspect.Parameter.POSITIONAL_ONLY:
                index = list(self.signature.parameters).index(self.context_name)
                positional = (*positional[:index], call.tool_context(), *positional[index:])
            else:
                keywords[self.context_name] = call.tool_context()
        if self.agent_name is not None:
            keywords[self.agent_name] = call.tool_context().agent
        return self.function(*positional, **keywords)

    def convert_arguments(self, arguments):
        """A copy of the arguments, each converted to the type of its hint."""
        arguments, violations = dict(arguments), []
        for name, convert in self.converters:
            if name in arguments:
                try:
                    arguments[name] = convert(arguments[name])
                except InvalidValue as invalid:
                    violations += invalid.at_key(name)
        if violations:
            raise InvalidValue(violations)
        return arguments

    def arrange_arguments(self, arguments):
        """(positional, keywords) for functions with positional-only parameters, `*args` or `**kwargs`."""
        positional, keywords, extra = [], {}, None
        var_positional = next((parameter for parameter in self.parameters if parameter.kind is inspect.Parameter.VAR_POSITIONAL), None)
        has_var_values = bool(var_positional and arguments.get(var_positional.name))
        for parameter in self.parameters:
            if parameter.kind is inspect.Parameter.VAR_KEYWORD:
                extra = parameter
            elif parameter is var_positional:
                positional += arguments.get(var_positional.name) or []
            else:
                value = arguments.get(parameter.name, MISSING)
                if value is MISSING and parameter.default is not MISSING:
                    value = parameter.default()
                is_positional = parameter.kind is inspect.Parameter.POSITIONAL_ONLY or (
                    has_var_values and parameter.kind is inspect.Parameter.POSITIONAL_OR_KEYWORD
                )
                if value is MISSING and is_positional:
                    value = self.signature.parameters[parameter.name].default
                    if value is inspect.Parameter.empty:
                        raise InvalidValue([(f"/{parameter.name}", "is missing")])
                if value is MISSING:
                    continue
                if is_positional:
                    positional.append(value)
                else:
                    keywords[parameter.name] = value
        if extra is not None:
            unknown = {name: value for name, value in arguments.items() if name not in self.names or name == extra.name}
            reserved = {self.context_name, self.agent_name}
            for name, value in unknown.items():
                if name in reserved:
                    continue
                try:
                    keywords[name] = extra.convert(value) if extra.convert else value
                except InvalidValue as invalid:
                    raise InvalidValue(invalid.at_key(name)) from None
        return tuple(positional), keywords

    def check_required(self, keywords, positional=()):
        """Raises InvalidValue if arguments are missing: an explicit input_schema may require less than the function does."""
        missing = []
        for parameter in self.parameters[len(positional) :]:
            is_required = self.signature.parameters[parameter.name].default is inspect.Parameter.empty
            if (
                is_required
                and parameter.name not in keywords
                and parameter.kind in (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
            ):
                missing.append((f"/{parameter.name}", "is missing"))
        if missing:
            raise InvalidValue(missing)

    def as_tool(self, **more):
        """The tool that calls the function."""
        return Tool(
            self.name,
            self.description,
            self.input_schema,
            self.options.framework,
            self.start,
            self.function,
            output_schema=self.output_schema,
            schema_owner="derived" if self.options.input_schema is None else "own",
            is_async=is_async_function(self.function),
            result_as_answer=self.options.result_as_answer,
            takes_context=self.context_name is not None or self.agent_name is not None,
            **more,
        )
