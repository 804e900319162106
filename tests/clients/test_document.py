"""An independent validator accepts the document as OpenAPI 3.1."""

import json

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from conftest import HERE, run
from harness import BIN, REPO


def test_served_document_is_valid(document):
    OpenAPIV31SpecValidator(json.loads(document.read_text())).validate()


def test_committed_document_is_valid():
    OpenAPIV31SpecValidator(json.loads((REPO / "openapi/openapi.json").read_text())).validate()


def test_validator_rejects_a_broken_document(document):
    broken = json.loads(document.read_text())
    del broken["paths"]["/tools/get_weather/invoke"]["post"]["responses"]["200"]["description"]
    with pytest.raises(Exception, match="description"):
        OpenAPIV31SpecValidator(broken).validate()


def test_openapi_command_prints_the_served_document(document, work):
    text = run("env", "UPSTREAM=http://127.0.0.1:9", BIN, "openapi", "--manifest", HERE / "tools.yaml", cwd=work).stdout
    printed, served = json.loads(text), json.loads(document.read_text())
    # A service without callers takes no keys. The printed document is for services with callers, too.
    del printed["security"], printed["components"]["securitySchemes"]
    assert printed == served


def test_schema_with_another_resource_is_shown_without_its_id(document):
    schemas = json.loads(document.read_text())["components"]["schemas"]
    shown = schemas["nested_id_arguments"]["properties"]["inner"]["$ref"]
    assert schemas[shown.removeprefix("#/components/schemas/")]["properties"] == {"word": {"type": "string"}}
