// The page of the API. It reads the document with the key that the user gave, so that it shows the tools of that caller.
"use strict";

const DOCUMENT = "/openapi.json";
const PROBLEM = "A problem (`application/problem+json`): `kind` and `detail` say what is wrong, `retryable` whether the "
    + "same request may succeed later.";

// Each operation can answer with a dozen problems of the same shape. One entry for all keeps an open operation short.
function mergeProblems(document) {
    for (const operations of Object.values(document.paths ?? {})) {
        for (const operation of Object.values(operations)) {
            const responses = Object.entries(operation.responses ?? {});
            const others = responses.filter(([status]) => Number(status) < 400);
            if (others.length < responses.length) {
                operation.responses = {...Object.fromEntries(others), default: {description: PROBLEM}};
            }
        }
    }
    return document;
}

function showNotice(text) {
    const notice = document.getElementById("notice");
    notice.textContent = text;
    notice.hidden = text === "";
}

// The headers for the key in the dialog "Authorize".
function keyHeaders(ui) {
    const given = ui ? ui.authSelectors.authorized().toJS() : {};
    if (given.bearer?.value) {
        return {"authorization": `Bearer ${given.bearer.value}`};
    }
    return given.header?.value ? {"x-api-key": given.header.value} : {};
}

async function fetchDocument(headers) {
    const response = await fetch(DOCUMENT, {headers, cache: "no-store"});
    const body = await response.json();
    if (!response.ok) {
        throw new Error(body.detail ?? `status ${response.status}`);
    }
    return mergeProblems(body);
}

async function reload(ui) {
    const headers = keyHeaders(ui);
    try {
        ui.specActions.updateSpec(JSON.stringify(await fetchDocument(headers)));
        showNotice(hasKeys(ui) && Object.keys(headers).length === 0 ? ASK_FOR_KEY : "");
    } catch (error) {
        showNotice(`The tools of this key cannot be shown: ${error.message}.`);
    }
}

const ASK_FOR_KEY = "Press Authorize and enter a caller's key. Then the page also shows that caller's tools.";

function hasKeys(ui) {
    return Boolean(ui.specSelectors.securityDefinitions()?.size);
}

// A given or removed key changes which tools the document has.
function reloadWithKey() {
    const afterwards = (original) => (payload) => {
        const result = original(payload);
        reload(window.ui);
        return result;
    };
    return {statePlugins: {auth: {wrapActions: {authorize: afterwards, logout: afterwards}}}};
}

async function start() {
    const spec = await fetchDocument({});
    window.ui = SwaggerUIBundle({
        spec,
        dom_id: "#api",
        deepLinking: true,
        docExpansion: "list",
        tryItOutEnabled: true,
        displayRequestDuration: true,
        defaultModelsExpandDepth: -1,
        validatorUrl: null,
        plugins: [reloadWithKey],
    });
    if (spec.components?.securitySchemes) {
        showNotice(ASK_FOR_KEY);
    }
}

start().catch((error) => showNotice(`The page cannot be shown: ${error.message}.`));
