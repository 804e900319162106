#!/usr/bin/env node
// An agent's whole loop over plain HTTP, for five providers' APIs, with nothing but fetch (Node.js 18 or later).
//
//     toolcrib serve &                          // http://localhost:7411
//     python3 model_server.py 7412 &            // a scripted model; MODEL_URL may as well be the provider's own address
//     node agent.mjs openai                     // or openai-responses, anthropic, gemini, bedrock
//
// The model's answer goes to POST /calls unchanged, and the messages in the response are appended. No code here knows the form of a tool call.

const { TOOLCRIB_URL = "http://localhost:7411", MODEL_URL = "http://localhost:7412" } = process.env;
const { MODEL_KEY: key = "no-key", MODEL_NAME: model = "scripted" } = process.env;
const question = "What is 6 times 7, what is that squared, and what is one divided by zero?";

// For each API: its path and headers, the question, the request, and from the answer what to append and the text.
const apis = {
  openai: {
    path: "/v1/chat/completions",
    headers: { authorization: `Bearer ${key}` },
    question: { role: "user", content: question },
    request: (history, tools) => ({ model, messages: history, tools }),
    said: (answer) => [answer.choices[0].message],
    text: (answer) => answer.choices[0].message.content,
  },
  "openai-responses": {
    path: "/v1/responses",
    headers: { authorization: `Bearer ${key}` },
    question: { role: "user", content: question },
    request: (history, tools) => ({ model, input: history, tools }),
    said: (answer) => answer.output,
    text: (answer) => answer.output.at(-1).content[0].text,
  },
  anthropic: {
    path: "/v1/messages",
    headers: { "x-api-key": key, "anthropic-version": "2023-06-01" },
    question: { role: "user", content: question },
    request: (history, tools) => ({ model, max_tokens: 1024, messages: history, tools }),
    said: (answer) => [{ role: "assistant", content: answer.content }],
    text: (answer) => answer.content.at(-1).text,
  },
  gemini: {
    path: `/v1beta/models/${model}:generateContent`,
    headers: { "x-goog-api-key": key },
    question: { role: "user", parts: [{ text: question }] },
    request: (history, tools) => ({ contents: history, tools }),
    said: (answer) => [answer.candidates[0].content],
    text: (answer) => answer.candidates[0].content.parts.at(-1).text,
  },
  bedrock: {
    path: `/model/${model}/converse`,
    headers: { authorization: `Bearer ${key}` },
    question: { role: "user", content: [{ text: question }] },
    request: (history, tools) => ({ messages: history, toolConfig: tools }),
    said: (answer) => [answer.output.message],
    text: (answer) => answer.output.message.content.at(-1).text,
  },
};

async function http(url, body, headers = {}) {
  const options = { headers: { "content-type": "application/json", ...headers } };
  if (body !== undefined) Object.assign(options, { method: "POST", body: JSON.stringify(body) });
  const reply = await fetch(url, options);
  if (!reply.ok) throw new Error(`${url}: ${reply.status} ${await reply.text()}`);
  return reply.json();
}

async function main(provider) {
  const api = apis[provider];
  if (!api) throw new Error(`usage: agent.mjs ${Object.keys(apis).join("|")}`);
  const tools = await http(`${TOOLCRIB_URL}/tools?format=${provider}`);
  const history = [api.question];
  for (let turn = 0; turn < 8; turn++) {
    const answer = await http(MODEL_URL + api.path, api.request(history, tools), api.headers);
    history.push(...api.said(answer));
    const done = await http(`${TOOLCRIB_URL}/calls?dialect=${provider}&run_id=example-${process.pid}`, answer);
    if (!done.messages.length) return api.text(answer);
    history.push(...done.messages);
  }
  throw new Error("no answer after eight turns");
}

console.log(await main(process.argv[2]));
