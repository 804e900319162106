"""The document is OpenAPI 3.1 to a validator that is not ours."""

import json

import pytest
from openapi_spec_validator import OpenAPIV31SpecValidator

from conftest import HERE, REPO, run
from harness import BIN


def test_the_served_document(document):
    OpenAPIV31SpecValidator(json.loads(document.read_text())).validate()


def test_the_committed_document():
    OpenAPIV31SpecValidator(json.loads((REPO / "openapi/openapi.json").read_text())).validate()


def test_the_validator_can_say_no(document):
    broken = json.loads(document.read_text())
    del broken["paths"]["/tools/get_weather/invoke"]["post"]["responses"]["200"]["description"]
    with pytest.raises(Exception, match="description"):
        OpenAPIV31SpecValidator(broken).validate()


def test_the_command_line_prints_what_is_served(document, work):
    said = run("env", "UPSTREAM=http://127.0.0.1:9", BIN, "openapi", "--manifest", HERE / "tools.yaml", cwd=work).stdout
    assert json.loads(said) == json.loads(document.read_text())


def test_a_schema_that_cannot_be_carried_over_is_shown_as_open(document):
    schemas = json.loads(document.read_text())["components"]["schemas"]
    assert schemas["nested_id_arguments"]["additionalProperties"] is True
    assert "GET /tools/nested-id" in schemas["nested_id_arguments"]["description"]
