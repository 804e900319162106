"""Checks of the suite that do not apply to a server of tools: `scenario/check`, each with the reason."""

PROMPTS = "there are no prompts here"
RESOURCES = "there are no resources here; what a tool answers may hold one"
SAMPLING = "tools ask the client for forms only, not for a model's answer (sampling) or for roots, and no tool needs a capability"
LOGGING = "what tools print is for the operator, in the service's log; the protocol has given its own logging up (SEP-2577)"
DEFAULT = "a list that is empty is answered although nothing is declared: rmcp does so, and nobody who reads what is declared asks for it"
RESUMING = "a stream that breaks off is not taken up again, so its events have no ids: the call goes on or ends as its tool's `on_disconnect` says"
OVER_HTTP = "the suite's tool changes the list by HTTP, and there is none; test_clients.py changes it otherwise"

NOT_MET = {
    **dict.fromkeys([
        "prompts-get-simple/prompts-get-simple",
        "prompts-get-with-args/prompts-get-with-args",
        "prompts-get-embedded-resource/prompts-get-embedded-resource",
        "prompts-get-with-image/prompts-get-with-image",
        "input-required-result-non-tool-request/sep-2322-non-tool-incomplete",
    ], PROMPTS),
    "server-stateless/sep-2575-server-declares-prompts-in-discover": DEFAULT,
    **dict.fromkeys([
        "resources-read-text/resources-read-text",
        "resources-read-binary/resources-read-binary",
        "resources-templates-read/resources-templates-read",
        "resources-subscribe/resources-subscribe",
        "resources-unsubscribe/resources-unsubscribe",
        "sep-2164-resource-not-found/sep-2164-error-code",
        "sep-2164-resource-not-found/sep-2164-data-uri",
    ], RESOURCES),
    **dict.fromkeys([
        "logging-set-level/logging-set-level",
        "tools-call-with-logging/tools-call-with-logging",
    ], LOGGING),
    **dict.fromkeys([
        "tools-call-sampling/tools-call-sampling",
        "server-stateless/sep-2575-server-rejects-undeclared-capability",
        "server-stateless/sep-2575-missing-capability-http-400",
        "input-required-result-basic-sampling/sep-2322-sampling-incomplete",
        "input-required-result-basic-list-roots/sep-2322-list-roots-incomplete",
        "input-required-result-multiple-input-requests/sep-2322-multiple-inputs-incomplete",
        "input-required-result-capability-check/sep-2322-respect-client-capabilities",
    ], SAMPLING),
    **dict.fromkeys([
        "server-sse-polling/server-sse-priming-event",
        "server-sse-polling/server-sse-retry-field",
    ], RESUMING),
}  # fmt: skip

# Over standard input and output, by bridge.py.
NOT_MET_OVER_STDIO = {
    **NOT_MET,
    "server-stateless/sep-2575-server-sends-tools-list-changed-on-subscription": OVER_HTTP,
}

# These are about HTTP itself, which the bridge implements over standard input and output; so are all checks that name it.
OF_HTTP = {
    "dns-rebinding-protection", "http-header-validation", "http-custom-header-server-validation", "server-session-lifecycle",
    "server-sse-multiple-streams", "server-sse-polling",
}  # fmt: skip


def is_of_http(check):
    scenario, _, name = check.partition("/")
    return scenario in OF_HTTP or "http" in name
