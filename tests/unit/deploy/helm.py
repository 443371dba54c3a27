"""Stands in for `helm template`, for the part of its language that our chart keeps to; anything else is an error:

{{ .Values.a.b }}, {{ .Release.Name }}, {{ .Release.Namespace }}, `| quote`,
{{- if .Values.x }}, {{- else }} and {{- end }} on lines of their own
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

_TAG = re.compile(r"[ \t]*\{\{-?\s*(if \.[\w.]+|else|end)\s*\}\}\n")
_VALUE = re.compile(r"\{\{ (\.[\w.]+)( \| quote)? \}\}")


def render(chart: Path, values: Mapping[str, Any], *, name: str, namespace: str) -> list[dict[str, Any]]:
    """All objects, custom resource definitions first, as `helm install` would create them."""
    defaults = yaml.safe_load((chart / "values.yaml").read_text(encoding="utf-8"))
    scope = {"Values": _merged(defaults, values), "Release": {"Name": name, "Namespace": namespace}}
    texts = [path.read_text(encoding="utf-8") for path in sorted((chart / "crds").glob("*.yaml"))]
    texts += [
        _rendered(path.read_text(encoding="utf-8"), scope) for path in sorted((chart / "templates").glob("*.yaml"))
    ]
    return [item for text in texts for item in yaml.safe_load_all(text) if item]


def _merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    unknown = over.keys() - base.keys()
    assert not unknown, f"values.yaml does not name {unknown}"
    return {
        key: _merged(value, over[key]) if isinstance(value, dict) and key in over else over.get(key, value)
        for key, value in base.items()
    }


def _rendered(text: str, scope: Mapping[str, Any]) -> str:
    out, shown = "", [True]
    pieces = _TAG.split(text)
    for index, piece in enumerate(pieces):
        if index % 2 == 0:
            out += _filled(piece, scope) if all(shown) else ""
        elif piece == "else":
            shown[-1] = not shown[-1]
        elif piece == "end":
            shown.pop()
        else:
            shown.append(bool(_looked_up(piece.removeprefix("if "), scope)))
    assert shown == [True], "an `if` without its `end`"
    return out


def _filled(text: str, scope: Mapping[str, Any]) -> str:
    def value(match: re.Match[str]) -> str:
        found = _looked_up(match[1], scope)
        return json.dumps(str(found)) if match[2] else str(found)

    filled = _VALUE.sub(value, text)
    assert "{{" not in filled, f"the stand-in does not know this: {filled[filled.index('{{') :][:60]}"
    return filled


def _looked_up(path: str, scope: Mapping[str, Any]) -> Any:
    found: Any = scope
    for word in path.strip(".").split("."):
        found = found[word]
    return found


def plain(chart: Path) -> str:
    """The chart's defaults as one file for `kubectl apply`, without what is for helm alone (its hook)."""
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "swell"}}
    items = [item for item in render(chart, {}, name="swell", namespace="swell") if not _is_hook(item)]
    return HEADER + yaml.safe_dump_all([namespace, *items], sort_keys=False, width=120)


def _is_hook(item: Mapping[str, Any]) -> bool:
    return "helm.sh/hook" in (item["metadata"].get("annotations") or {})


HEADER = """# The daemon in the cluster, without helm: set its image and the storage of jobs (storage_claim), then
#   kubectl apply -f deploy/kubernetes/swell.yaml
# Made of deploy/helm/swell (its values.yaml says what each value is for) by
#   PYTHONPATH=tests python -m unit.deploy.helm > deploy/kubernetes/swell.yaml
"""

if __name__ == "__main__":
    sys.stdout.write(plain(Path(__file__).resolve().parents[3] / "deploy/helm/swell"))
