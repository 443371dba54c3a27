"""Whatever is asked, in whatever shape: an answer, or a problem that names the mistake. Never an error inside."""

import re
from urllib.parse import quote, urlencode

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from integration.api.conftest import Server

text = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
names = (
    st.sampled_from(["1", "2", "99", "last", "a", "here", "1.1", "7.2", "0", "-1", "cordon", "..", "%00", "*"]) | text
)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | text
bodies = st.recursive(
    scalars, lambda inner: st.lists(inner, max_size=3) | st.dictionaries(text, inner, max_size=3), max_leaves=6
)
fields = [
    "command",
    "gpus",
    "jobs",
    "all",
    "name",
    "priority",
    "reason",
    "options",
    "rank",
    "position",
    "epochs",
    "array",
]
objects = st.dictionaries(st.sampled_from(fields), bodies, max_size=4) | bodies
parameters = [
    "state",
    "after",
    "limit",
    "rank",
    "epoch",
    "step",
    "ack_epoch",
    "wait_s",
    "user",
    "attempt",
    "offset",
    "job",
]
queries = st.dictionaries(st.sampled_from(parameters), scalars, max_size=3)
LASTING = {"/v1/events", "/v1/live"}  # may follow for ever


@given(st.data())
@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_never_an_error_of_the_daemon(server: Server, data: st.DataObject) -> None:
    routes = [
        (method.upper(), path)
        for path, methods in sorted(server.app.openapi()["paths"].items())
        for method in sorted(methods)
        if path not in LASTING
    ]
    method, template = data.draw(st.sampled_from(routes))
    path = re.sub(r"\{\w+\}", lambda _: quote(data.draw(names), safe=""), template)
    query = urlencode(data.draw(queries))
    body = data.draw(objects) if method in ("POST", "PUT") else None
    answer = server.client.request(method, f"{path}?{query}", json=body)
    assert answer.status_code < 500, answer.text
    if answer.status_code >= 400:
        assert answer.json()["detail"]
