"""Sends requests that schemathesis makes of `/openapi.json`, right and wrong ones, to all routes."""

from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from starlette.types import ASGIApp

from serving_app import fake_services
from serving_fakes import FakeEngine
from transformer.serving.app import create_app
from transformer.serving.settings import Limits

UNEXPECTED = {500, 504}
"""Statuses of failures and of requests that do not end in time; others tell the client what is wrong."""


def make_app() -> ASGIApp:
    """Returns the application with an engine without models."""
    engine = FakeEngine()
    limits = Limits(per_minute=0, request_seconds=60, characters=2000, texts=20)
    return create_app(fake_services(engine, limits=limits))


@pytest.mark.parametrize(
    "cases", [pytest.param(500, marks=pytest.mark.slow), pytest.param(10_000, marks=pytest.mark.soak)]
)
def test_no_request_makes_the_server_fail(cases: int) -> None:
    """Catches a request, valid by the description of the routes or not, that raises an unforeseen error or hangs."""
    schema = schemathesis.openapi.from_asgi("/openapi.json", make_app())
    operations = [result.ok() for result in schema.get_all_operations()]
    requests = [operation.as_strategy(mode) for operation in operations for mode in GenerationMode]
    seen = set()

    @settings(
        max_examples=cases, phases=[Phase.explicit, Phase.generate, Phase.shrink], report_multiple_bugs=False,
        suppress_health_check=[*HealthCheck], deadline=None, derandomize=True, database=None,
    )  # fmt: skip
    @given(st.one_of(requests))
    def send(case: Any) -> None:
        response = case.call()
        assert response.status_code not in UNEXPECTED, case.as_curl_command()
        seen.add(case.operation.label)

    send()
    assert len(seen) > len(operations) / 2
