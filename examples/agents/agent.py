#!/usr/bin/env python3
"""An agent's whole loop over plain HTTP, for five providers' APIs. Toolcrib has the tools, the model says which to call.

    toolcrib serve &                          # http://localhost:7411
    python3 model_server.py 7412 &            # a scripted model; MODEL_URL may as well be the provider's own address
    python3 agent.py openai                   # or openai-responses, anthropic, gemini, bedrock

The model's answer goes to POST /calls unchanged, and the messages in the response are appended. No code here knows the form of a tool call.
"""

import json
import os
import sys
import urllib.error
import urllib.request

TOOLCRIB = os.environ.get("TOOLCRIB_URL", "http://localhost:7411")
MODEL = os.environ.get("MODEL_URL", "http://localhost:7412")
KEY, NAME = os.environ.get("MODEL_KEY", "no-key"), os.environ.get("MODEL_NAME", "scripted")
QUESTION = "What is 6 times 7, what is that squared, and what is one divided by zero?"

# For each API: its path and headers, the question, the request, and from the answer what to append and the text.
APIS = {
    "openai": {
        "path": "/v1/chat/completions", "headers": {"authorization": f"Bearer {KEY}"},
        "question": {"role": "user", "content": QUESTION},
        "request": lambda history, tools: {"model": NAME, "messages": history, "tools": tools},
        "said": lambda answer: [answer["choices"][0]["message"]],
        "text": lambda answer: answer["choices"][0]["message"]["content"],
    },
    "openai-responses": {
        "path": "/v1/responses", "headers": {"authorization": f"Bearer {KEY}"},
        "question": {"role": "user", "content": QUESTION},
        "request": lambda history, tools: {"model": NAME, "input": history, "tools": tools},
        "said": lambda answer: answer["output"],
        "text": lambda answer: answer["output"][-1]["content"][0]["text"],
    },
    "anthropic": {
        "path": "/v1/messages", "headers": {"x-api-key": KEY, "anthropic-version": "2023-06-01"},
        "question": {"role": "user", "content": QUESTION},
        "request": lambda history, tools: {"model": NAME, "max_tokens": 1024, "messages": history, "tools": tools},
        "said": lambda answer: [{"role": "assistant", "content": answer["content"]}],
        "text": lambda answer: answer["content"][-1]["text"],
    },
    "gemini": {
        "path": f"/v1beta/models/{NAME}:generateContent", "headers": {"x-goog-api-key": KEY},
        "question": {"role": "user", "parts": [{"text": QUESTION}]},
        "request": lambda history, tools: {"contents": history, "tools": tools},
        "said": lambda answer: [answer["candidates"][0]["content"]],
        "text": lambda answer: answer["candidates"][0]["content"]["parts"][-1]["text"],
    },
    "bedrock": {
        "path": f"/model/{NAME}/converse", "headers": {"authorization": f"Bearer {KEY}"},
        "question": {"role": "user", "content": [{"text": QUESTION}]},
        "request": lambda history, tools: {"messages": history, "toolConfig": tools},
        "said": lambda answer: [answer["output"]["message"]],
        "text": lambda answer: answer["output"]["message"]["content"][-1]["text"],
    },
}


def http(url, body=None, headers=None):
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"content-type": "application/json", **(headers or {})})
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            return json.load(reply)
    except urllib.error.HTTPError as refused:
        sys.exit(f"{url}: {refused.code} {refused.read().decode()}")


def main(provider):
    api = APIS[provider]
    tools = http(f"{TOOLCRIB}/tools?format={provider}")
    history = [api["question"]]
    for _ in range(8):
        answer = http(MODEL + api["path"], api["request"](history, tools), api["headers"])
        history += api["said"](answer)
        done = http(f"{TOOLCRIB}/calls?dialect={provider}&run_id=example-{os.getpid()}", answer)
        if not done["messages"]:
            return api["text"](answer)
        history += done["messages"]
    sys.exit("no answer after eight turns")


if __name__ == "__main__":
    if len(sys.argv) != 2 or sys.argv[1] not in APIS:
        sys.exit(f"usage: agent.py {'|'.join(APIS)}")
    print(main(sys.argv[1]))
