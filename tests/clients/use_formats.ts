// Each provider's official SDK gets the tools that the service gave out for it. The test writes them in as literals, in place
// of the comments with a `[]`: a literal may have no key that the SDK's type does not have.

import Anthropic from "@anthropic-ai/sdk";
import { BedrockRuntimeClient, ConverseCommand, type ToolConfiguration } from "@aws-sdk/client-bedrock-runtime";
import { GoogleGenAI, type Tool as GeminiTool } from "@google/genai";
import { ListToolsResultSchema, type ListToolsResult, type Tool as McpTool } from "@modelcontextprotocol/sdk/types.js";
import { NodeHttpHandler } from "@smithy/node-http-handler";
import OpenAI from "openai";
import { isDeepStrictEqual } from "node:util";

const chat: OpenAI.Chat.Completions.ChatCompletionFunctionTool[] = /* openai */ [];
const responses: OpenAI.Responses.FunctionTool[] = /* openai-responses */ [];
const messages: Anthropic.Messages.Tool[] = /* anthropic */ [];
const gemini: GeminiTool[] = /* gemini */ [];
const converse: ToolConfiguration = /* bedrock */ [];
const mcp: { tools: McpTool[] } = /* mcp */ [];

const base = process.argv[2];

const openai = new OpenAI({ baseURL: base, apiKey: "k", maxRetries: 0 });
await openai.chat.completions.create({ model: "m", messages: [{ role: "user", content: "?" }], tools: chat });
await openai.responses.create({ model: "m", input: "?", tools: responses });

const anthropic = new Anthropic({ baseURL: base, apiKey: "k", maxRetries: 0 });
await anthropic.messages.create({ model: "m", max_tokens: 1, messages: [{ role: "user", content: "?" }], tools: messages });

const google = new GoogleGenAI({ apiKey: "k", vertexai: false, httpOptions: { baseUrl: base } });
await google.models.generateContent({ model: "m", contents: "?", config: { tools: gemini } });

const bedrock = new BedrockRuntimeClient({
  endpoint: base,
  region: "us-east-1",
  credentials: { accessKeyId: "a", secretAccessKey: "s" },
  maxAttempts: 1,
  requestHandler: new NodeHttpHandler(), // else it speaks HTTP/2 only
});
await bedrock.send(
  new ConverseCommand({ modelId: "m", messages: [{ role: "user", content: [{ text: "?" }] }], toolConfig: converse }),
);

const read: ListToolsResult = ListToolsResultSchema.parse(mcp);
if (!isDeepStrictEqual(read, mcp)) throw new Error(JSON.stringify(read));

console.log("done");
