"""A tool in a module: what the model is told in TOOL_SPEC, and a function of the file's name."""

TOOL_SPEC = {
    "name": "weather_forecast",
    "description": "Forecasts the weather of a city for some days.",
    "inputSchema": {"json": {
        "type": "object",
        "properties": {"city": {"type": "string", "description": "The city"},
                       "days": {"type": "integer", "description": "How many days", "default": 3, "minimum": 1, "maximum": 10}},
        "required": ["city"],
    }},
}


def weather_forecast(tool, **kwargs):
    wanted = tool["input"]
    if wanted["city"] == "Atlantis":
        return {"toolUseId": tool["toolUseId"], "status": "error", "content": [{"text": "Atlantis has no weather"}]}
    return {"toolUseId": tool["toolUseId"], "status": "success",
            "content": [{"text": f"{wanted['city']}: {wanted.get('days', 3)} days of sun for {kwargs.get('tenant', 'nobody')}"}]}
