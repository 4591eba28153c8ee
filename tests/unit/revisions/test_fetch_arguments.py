"""The fetch container gets what spec.model says, whatever characters the API allows there."""

import re
from pathlib import Path
from typing import Any

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tailbound.api.model_source import ModelSource
from tailbound.api.parsing import InvalidObject, parse
from tailbound.api.runtime_contract import CACHE_MOUNT, model_path
from tailbound.fetch.buckets import S3Options
from tailbound.fetch.command import _arguments, _order
from tailbound.fetch.fetching import FetchRequest
from tailbound.revisions.model_mounts import fetch_arguments, resolve_arguments
from tailbound.revisions.resolved import ResolvedModel

DIGEST = "a" * 64
_ODD = "$$(TAILBOUND_FETCH_PROXY)"
_REFERENCE = re.compile(r"\$(?:\$|\(([^)]*)\))")


def expanded(argument: str) -> str:
    """What the kubelet makes of an argument: $$ is $, and $(NAME) is the value of a variable."""
    return _REFERENCE.sub(lambda found: "$" if found[1] is None else f"value of {found[1]}", argument)


def parts(first: str, *others: str) -> st.SearchStrategy[str]:
    """Text of characters that paths have, and of some that shells and parsers take for their own."""
    return st.builds(
        "{}{}".format, st.sampled_from((first, *others)), st.text("ab0-._=*?$()%&'+,;@:[]{}|~/", max_size=12)
    )


URIS = st.one_of(
    parts("https://models.example.com/", f"https://m.example.com:8443/{_ODD}", "http://[fd00::1]/a"),
    parts("s3://models/", "s3://models", "gs://models/-", "az://risk/models/"),
    parts("hf://risk/churn@main/", "hf://-/", "pvc://models/", f"pvc://models/{_ODD}"),
    st.just(f"oci://registry.example.com/models@sha256:{DIGEST}"),
)
MODELS = st.fixed_dictionaries(
    {"uri": URIS, "format": st.sampled_from(["onnx", "a-b", "0"])},
    optional={
        "sha256": st.just(DIGEST),
        "path": parts("-model.onnx", "--resolve", "a/b", "-"),
        "files": st.lists(parts("-x", "--files", "*", "**/", "a/**"), max_size=3, unique=True),
        "archive": st.sampled_from(["tar", "zip"]),
        "cache": st.just({"size": "1Gi"}),
        "s3": st.fixed_dictionaries(
            {},
            optional={
                "endpoint": st.sampled_from(["https://s3.example.com", "http://s3:9000"]),
                "region": st.sampled_from(["-", "--help", "eu-1"]),
                "pathStyle": st.booleans(),
            },
        ),
    },
)


URI = {"uri": "s3://models/7", "format": "onnx"}


@settings(max_examples=300)
@given(fields=MODELS, resolve=st.booleans())
@example(fields={**URI, "uri": f"https://models.example.com/{_ODD}"}, resolve=False)
@example(fields={**URI, "path": "-model.onnx", "files": ["--files", "-x"]}, resolve=True)
@example(fields={**URI, "s3": {"region": "--help"}}, resolve=False)
def test_each_field_that_the_api_accepts_reaches_the_fetch_as_it_is(
    fields: dict[str, Any], resolve: bool
) -> None:
    model = parse(ModelSource, fields)
    if isinstance(model, InvalidObject):
        return
    resolved = None if model.pinned else ResolvedModel(DIGEST, 1)
    given_ = resolve_arguments(model) if resolve else fetch_arguments(model, resolved)
    s3 = model.s3
    options = S3Options() if s3 is None else S3Options(s3.endpoint, s3.region, not s3.path_style)
    assert _order(_arguments([expanded(each) for each in given_[1:]])) == FetchRequest(
        model.uri,
        None if resolve else model.sha256 or (DIGEST if resolved is not None else None),
        Path(model_path(model.format, model.path)),
        model.path,
        options,
        resolved=resolved is not None and not resolve,
        resolve=resolve,
        files=model.files,
        archive=model.archive,
        cache=Path(CACHE_MOUNT) if model.cache is not None else None,
    )
