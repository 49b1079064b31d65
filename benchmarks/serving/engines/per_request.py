"""One call of CTranslate2 a request behind waitress, as LibreTranslate does it; for `benchmarks/serving/serving.py`."""

import json
from collections.abc import Callable, Iterable
from typing import Any

import waitress
from peer import PeerTranslator, answer, read_order


class Application:
    """The WSGI application."""

    def __init__(self, order: dict[str, Any]) -> None:
        self.translator = PeerTranslator(order)

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        """Translates the texts of a request."""
        request = json.loads(environ["wsgi.input"].read())
        is_list = isinstance(request["q"], list)
        translations = self.translator.translate(request["q"] if is_list else [request["q"]])
        body = answer(translations, is_list=is_list)
        start_response("200 OK", [("Content-Type", "application/json"), ("Content-Length", str(len(body)))])
        return [body]


if __name__ == "__main__":
    order = read_order()
    waitress.serve(
        Application(order), host="127.0.0.1", port=order["port"], threads=order["request_threads"],
        connection_limit=4000, backlog=4000,
    )  # fmt: skip
