"""Liveness and readiness probes, metrics, and the OpenAPI description of all routes."""

from typing import Any, Final

from prometheus_client import CONTENT_TYPE_LATEST
from pydantic import BaseModel
from starlette.responses import JSONResponse, Response

from transformer.serving.errors import ServiceError
from transformer.serving.operations import Call, Operation, Services

DOCUMENT: Final = "transformer.openapi"
"""Key of the function that returns `/openapi.json`, in the scope of a request."""


class Health(BaseModel):
    """State of the server; `status` is "ok" or says what is wrong."""

    status: str


def error_form(error: ServiceError) -> dict[str, Any]:
    """Returns the body of an error, as in LibreTranslate."""
    return {"error": error.message}


def find_problem(services: Services) -> str:
    """Returns why the server cannot take more work now; empty if it can."""
    status = services.engine.status()
    for name, model in status.models.items():
        if model.state in ("failed", "stalled"):
            return f"model {name} {model.state}: {model.problem}"
    if status.queued_tokens >= services.settings.limits.queue_tokens:
        return "the queue is full"
    return "" if status.ready else "the engine is not ready"


async def live(call: Call) -> dict[str, str]:
    """Answers while the event loop runs."""
    return {"status": "ok"}


async def ready(call: Call) -> Response:
    """Answers with 503 while more requests would be refused."""
    is_stopping = call.request.scope.get("state", {}).get("is_stopping")
    problem = "stopping" if is_stopping else find_problem(call.services)
    return JSONResponse({"status": problem or "ok"}, 503 if problem else 200)


async def metrics(call: Call) -> Response:
    """Returns the metrics."""
    return Response(call.services.metrics.render(), media_type=CONTENT_TYPE_LATEST)


async def openapi(call: Call) -> Response:
    """Returns the description of all routes, which is made once."""
    return Response(call.request.scope[DOCUMENT](), media_type="application/json")


OPERATIONS = (
    Operation(
        "GET", "/live", "Whether the process answers", live, error_form,
        response=Health, interface="operation", is_open=True,
    ),
    Operation(
        "GET", "/ready", "Whether more requests are accepted", ready, error_form,
        response=Health, interface="operation", is_open=True, errors=(503,),
    ),
    Operation(
        "GET", "/health", "Whether more requests are accepted", ready, error_form,
        response=Health, interface="LibreTranslate", is_open=True, errors=(503,),
    ),
    Operation(
        "GET", "/metrics", "Measurements in the format of Prometheus", metrics, error_form,
        media_type="text/plain", interface="operation", is_open=True,
    ),
    Operation(
        "GET", "/openapi.json", "This description", openapi, error_form,
        response=dict[str, Any], interface="operation", is_open=True,
    ),
)  # fmt: skip
