"""A program against the generated client. mypy holds it against the types, the service against the truth."""

import sys

from toolcrib_client import Client
from toolcrib_client.api.invoke import invoke_calculator, invoke_get_weather, invoke_odd_names_2, invoke_prune, invoke_tool_2
from toolcrib_client.api.ledger import get_invocation, list_invocations
from toolcrib_client.api.operator import disable_tool
from toolcrib_client.api.tools import get_tool, invoke_tool, list_tools
from toolcrib_client.models import (
    ArgumentsType0, CalculatorArguments, CalculatorRequest, ErrorKind, GetWeatherAnswer, GetWeatherArguments,
    GetWeatherArgumentsPlace, GetWeatherArgumentsUnits, GetWeatherRequest, GetWeatherResult, GetWeatherResultSky,
    InvocationDetail, InvocationPage, InvokeAnswer, InvokeRequest, OddNames2Arguments, OddNames2Request, Problem, PruneAnswer,
    PruneArguments, PruneNode, PruneRequest, PruneResult, Switched, TextContent, Tool2Arguments, Tool2Request, ToolDetail,
    ToolList,
)

client = Client(base_url=sys.argv[1])

# A typed result, to the innermost field.
place = GetWeatherArgumentsPlace(lat=59.9, lon=10.7)
arguments = GetWeatherArguments(city="Oslo", days=2, units=GetWeatherArgumentsUnits.FAHRENHEIT, place=place)
answer = invoke_get_weather.sync(client=client, body=GetWeatherRequest(arguments=arguments, run_id="python-1"))
assert isinstance(answer, GetWeatherAnswer), answer
assert not answer.is_error and answer.meta.attempts == 1
assert isinstance(answer.content[0], TextContent) and "cloudy" in answer.content[0].text
weather = answer.structured_content
assert isinstance(weather, GetWeatherResult), weather
assert weather.sky is GetWeatherResultSky.CLOUDY
assert [(day.high, day.note) for day in weather.days] == [(21.5, None), (19, "rain")]

# A typed problem: the types accept the value and the schema does not.
refused = invoke_get_weather.sync_detailed(client=client, body=GetWeatherRequest(GetWeatherArguments(city="Oslo", days=9)))
assert refused.status_code == 422
problem = refused.parsed
assert isinstance(problem, Problem) and problem.kind is ErrorKind.INVALID_ARGUMENTS, problem
assert isinstance(problem.violations, list) and problem.violations[0].pointer == "/days"

# An error result has no structured content.
gone = invoke_get_weather.sync(client=client, body=GetWeatherRequest(GetWeatherArguments(city="Nowhere")))
assert isinstance(gone, GetWeatherAnswer) and gone.is_error and gone.structured_content is None, gone

tree = PruneNode(name="a", kids=[PruneNode(name="b", kids=[])])
pruned = invoke_prune.sync(client=client, body=PruneRequest(PruneArguments(tree)))
assert isinstance(pruned, PruneAnswer) and isinstance(pruned.structured_content, PruneResult), pruned
assert pruned.structured_content.kids[0].name == "b"

odd = OddNames2Arguments(class_="c", ref="r", from_="f", type_="odd", anything=[1])
echoed = invoke_odd_names_2.sync(client=client, body=OddNames2Request(odd))
assert isinstance(echoed, InvokeAnswer), echoed
assert echoed.structured_content == {"class": "c", "$ref": "r", "from": "f", "type": "odd", "anything": [1]}, echoed

pair = invoke_tool_2.sync(client=client, body=Tool2Request(Tool2Arguments(pair=[1, "a"], word="w")))
assert isinstance(pair, InvokeAnswer) and pair.structured_content == {"pair": [1, "a"], "word": "w"}, pair

# The fixed routes.
listed = list_tools.sync(client=client)
assert isinstance(listed, ToolList) and "get_weather" in [tool.name for tool in listed.tools], listed
detail = get_tool.sync("get_weather", client=client)
assert isinstance(detail, ToolDetail) and detail.policy.retry.attempts == 1 and detail.policy.cache is None, detail
by_text = invoke_tool.sync("calculator", client=client, body=InvokeRequest(arguments='{"expression": "6*7"}'))
assert isinstance(by_text, InvokeAnswer) and not by_text.is_error, by_text
by_name = ArgumentsType0.from_dict({"expression": "6*7"})
assert isinstance(invoke_tool.sync("calculator", client=client, body=InvokeRequest(arguments=by_name)), InvokeAnswer)
page = list_invocations.sync(client=client, tool="get_weather", run_id="python-1")
assert isinstance(page, InvocationPage) and len(page.invocations) == 1, page
recorded = get_invocation.sync(page.invocations[0].invocation_id, client=client)
assert isinstance(recorded, InvocationDetail) and isinstance(recorded.result, InvokeAnswer), recorded

switched = disable_tool.sync("calculator", client=client)
assert isinstance(switched, Switched) and switched.enabled is False, switched
off = invoke_calculator.sync(client=client, body=CalculatorRequest(CalculatorArguments("6*7")))
assert isinstance(off, Problem) and off.kind is ErrorKind.TOOL_DISABLED, off
print("done")
