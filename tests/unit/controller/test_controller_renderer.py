"""Templates are expanded in a child process that no template can hold up, exhaust or take down for good."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest
from tailbound.controller import renderer as module
from tailbound.controller.renderer import Renderer
from tailbound.kube.errors import Transient
from tailbound.reconcile.model import Rendered, RenderFailed, RenderRequest


def request(text: str, number: int = 0) -> RenderRequest:
    context = {"service": {"name": f"churn-{number}"}}
    return RenderRequest("ServingRuntime mine", json.dumps({"args": [text]}), json.dumps(context))


@pytest.fixture
async def renderer() -> AsyncIterator[Renderer]:
    made = Renderer()
    await made.start()
    yield made
    await made.close()


async def test_leaf_strings_are_expanded(renderer: Renderer) -> None:
    rendering = await renderer.render(request("--name={{ service.name }}"))
    assert isinstance(rendering, Rendered)
    assert json.loads(rendering.template_json) == {"args": ["--name=churn-0"]}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (
            "{% for i in range(99999999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
            "ServingRuntime mine",
        ),
        ("{{ 'x' * 999999999 }}", "MiB of memory"),
        ("{{ [0] * 99999999 }}", "MiB of memory"),
        ("{{ service.unknown }}", "spec.server.args[0]"),
        ("{{ service.name.__class__.__mro__ }}", "spec.server.args[0]"),
        ("{{", "spec.server.args[0]"),
    ],
    ids=["large range", "large text", "large list", "unknown name", "escape", "syntax"],
)
async def test_bad_template_fails_with_its_reason_and_the_next_one_is_expanded(
    renderer: Renderer, text: str, words: str
) -> None:
    failed = await renderer.render(request(text))
    assert isinstance(failed, RenderFailed)
    assert words in failed.message
    assert isinstance(await renderer.render(request("{{ service.name }}")), Rendered)


async def test_template_that_computes_for_ever_is_ended_after_its_second(
    renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WALL_SECONDS", 60.0)  # a busy machine may take long to give it its second
    endless = "{% set ns = namespace(x=1) %}{% for i in range(99999) %}{% for j in range(99999) %}" + (
        "{% set ns.x = (ns.x * 3) % 1000003 %}{% endfor %}{% endfor %}"
    )
    failed = await renderer.render(request(endless))
    assert isinstance(failed, RenderFailed)
    assert "second of CPU time" in failed.message


async def test_many_honest_templates_do_not_add_up_to_a_limit(renderer: Renderer) -> None:
    for number in range(300):
        assert isinstance(await renderer.render(request("{{ service.name }}" * 50, number)), Rendered)


async def test_equal_requests_are_expanded_once(renderer: Renderer) -> None:
    first = await renderer.render(request("{{ service.name }}"))
    await renderer.close()
    assert await renderer.render(request("{{ service.name }}")) is first


async def test_child_that_was_killed_is_a_passing_fault_and_is_replaced(renderer: Renderer) -> None:
    child = renderer._child
    assert child is not None
    child.send_signal(19)  # SIGSTOP: it is there and does not answer
    waiting = asyncio.create_task(renderer.render(request("{{ service.name }}")))
    await asyncio.sleep(0.1)
    child.kill()
    with pytest.raises(Transient):
        await waiting
    assert isinstance(await renderer.render(request("{{ service.name }}")), Rendered)


async def test_child_that_does_not_answer_is_ended(
    renderer: Renderer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "WALL_SECONDS", 0.2)
    child = renderer._child
    assert child is not None
    child.send_signal(19)
    with pytest.raises(Transient, match="no answer"):
        await renderer.render(request("{{ service.name }}"))
    assert child.returncode is not None
