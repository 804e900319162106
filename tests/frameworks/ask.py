"""Run in a framework's own environment: what that framework says of a module's tools, and what calling them gives. JSON in, JSON out.

in:  {"module": "/a/file.py" or "a.module", "calls": [["name", {arguments}]], "state": {}}
out: {"tools": {"name": {"description", "schema"}}, "results": [{"is_error", "texts", "json"}]}
"""

import asyncio
import importlib
import importlib.util
import json
import pathlib
import sys


def load(module):
    if not module.endswith(".py"):
        return importlib.import_module(module)
    sys.path.insert(0, str(pathlib.Path(module).parent))
    spec = importlib.util.spec_from_file_location(pathlib.Path(module).stem, module)
    loaded = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = loaded
    spec.loader.exec_module(loaded)
    return loaded


def strands(wanted):
    from strands.tools.registry import ToolRegistry

    registry = ToolRegistry()
    registry.process_tools([wanted["module"]])
    tools = registry.registry

    async def call(tool, arguments):
        last = None
        async for event in tool.stream({"toolUseId": "call_1", "name": tool.tool_name, "input": arguments}, dict(wanted.get("state", {}))):
            last = event
        return last["tool_result"] if "tool_result" in last else last

    def result(name, arguments):
        output = asyncio.run(call(tools[name], arguments))
        return {"is_error": output["status"] == "error", "texts": [block["text"] for block in output["content"] if "text" in block],
                "json": next((block["json"] for block in output["content"] if "json" in block), None)}

    definitions = {tool.tool_spec["name"]: {"description": tool.tool_spec["description"],
                                            "schema": tool.tool_spec["inputSchema"].get("json", tool.tool_spec["inputSchema"])}
                   for tool in tools.values()}
    return definitions, result


def crewai(wanted):
    from crewai.tools import BaseTool
    from crewai.utilities.string_utils import sanitize_tool_name

    tools = {sanitize_tool_name(tool.name): tool for tool in vars(load(wanted["module"])).values() if isinstance(tool, BaseTool)}

    def result(name, arguments):
        try:
            output = tools[name].run(**arguments)
        except Exception as error:
            return {"is_error": True, "texts": [str(error)]}
        return {"is_error": False, "texts": [output if isinstance(output, str) else json.dumps(output)],
                "json": output if isinstance(output, (dict, list)) else None}

    return {name: {"description": tool.description, "schema": tool.args_schema.model_json_schema()} for name, tool in tools.items()}, result


def langchain(wanted):
    from langchain_core.tools import BaseTool
    from langchain_core.utils.function_calling import convert_to_openai_tool

    tools = {tool.name: tool for tool in vars(load(wanted["module"])).values() if isinstance(tool, BaseTool)}
    shown = {name: convert_to_openai_tool(tool)["function"] for name, tool in tools.items()}

    def result(name, arguments):
        requests = {"type": "tool_call", "name": name, "args": arguments, "id": "call_1"}
        try:
            output = asyncio.run(tools[name].ainvoke(requests))
        except Exception as error:
            return {"is_error": True, "texts": [str(error)]}
        content = output.content
        return {"is_error": output.status == "error", "texts": [content] if isinstance(content, str) else [
            block if isinstance(block, str) else block["text"] for block in content if isinstance(block, str) or "text" in block]}

    return {name: {"description": one["description"], "schema": one["parameters"]} for name, one in shown.items()}, result


wanted = json.loads(sys.stdin.read())
definitions, result = {"strands": strands, "crewai": crewai, "langchain": langchain}[sys.argv[1]](wanted)
results = [result(name, arguments) for name, arguments in wanted["calls"]]
print("\n" + json.dumps({"tools": definitions, "results": results}))
