"""Templates are expanded in a child process that no template can hold up, exhaust or take down for good."""

import asyncio
import json
import math
from collections.abc import AsyncIterator

import pytest
from tailbound.controller import renderer as module
from tailbound.controller.renderer import Renderer
from tailbound.kube.errors import Transient
from tailbound.revisions.rendering import Rendered, RenderFailed, RenderRequest


def request(text: str, number: int = 0, namespace: str = "risk") -> RenderRequest:
    context = {"service": {"name": f"churn-{number}"}}
    template = json.dumps({"server": {"args": [text]}})
    return RenderRequest("ServingRuntime mine", template, json.dumps(context), namespace)


@pytest.fixture
async def renderer() -> AsyncIterator[Renderer]:
    made = Renderer()
    await made.start()
    yield made
    await made.close()


BAD = {
    "{% for i in range(99999999) %}{% for j in range(9999) %}{% endfor %}{% endfor %}": "ServingRuntime mine",
    "{{ 'x' * 999999999 }}": "MiB of memory",
    "{{ [0] * 99999999 }}": "MiB of memory",
    "{{ service.unknown }}": "spec.server.args[0]",
    "{{ service.name.__class__.__mro__ }}": "spec.server.args[0]",
    "{{": "spec.server.args[0]",
}


async def test_bad_templates_fail_with_their_reasons_and_the_next_ones_are_expanded_once(
    renderer: Renderer,
) -> None:
    for number, (text, words) in enumerate(BAD.items()):
        failed = await renderer.render(request(text, namespace=f"costly-{number}"))
        assert isinstance(failed, RenderFailed), text
        assert words in failed.message, text
        good = request("--name={{ service.name }}", number)
        rendering = await renderer.render(good)
        assert isinstance(rendering, Rendered), text
        assert json.loads(rendering.template_json)["server"] == {"args": [f"--name=churn-{number}"]}
    await renderer.close()
    assert await renderer.render(good) is rendering, "equal requests are expanded once"


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
    await renderer.render(request("{{ service.name }}"))
    monkeypatch.setattr(module, "WALL_SECONDS", 0.2)
    child = renderer._child
    assert child is not None
    child.send_signal(19)
    with pytest.raises(Transient, match="no answer"):
        await renderer.render(request("{{ service.name }}", 1))
    assert child.returncode is not None


async def test_child_that_starts_slowly_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "WALL_SECONDS", 3.0)
    renderer = Renderer()
    await renderer.start()
    child = renderer._child
    assert child is not None
    child.send_signal(19)
    waiting = asyncio.create_task(renderer.render(request("{{ service.name }}")))
    await asyncio.sleep(3.5)
    child.send_signal(18)
    assert isinstance(await waiting, Rendered)
    await renderer.close()


async def test_answer_to_a_request_that_was_given_up_is_not_taken_for_that_to_the_next(
    renderer: Renderer,
) -> None:
    await renderer.render(request("{{ service.name }}"))
    child = renderer._child
    assert child is not None
    child.send_signal(19)
    given_up = asyncio.create_task(renderer.render(request("{{ service.name }}", 1)))
    await asyncio.sleep(0.1)
    given_up.cancel()
    with pytest.raises(asyncio.CancelledError):
        await given_up
    rendering = await renderer.render(request("{{ service.name }}", 2))
    assert isinstance(rendering, Rendered)
    assert json.loads(rendering.template_json)["server"] == {"args": ["churn-2"]}


async def test_costly_templates_of_one_namespace_cost_no_other_one_its_turn() -> None:
    """Forty of them are tried; a second of the others' time passes with none, as the clock stands still."""
    renderer = Renderer(lambda: 0.0)
    await renderer.start()
    costly = [
        asyncio.create_task(renderer.render(request("{{ 'x' * 999999999 }}", n, "costly"))) for n in range(40)
    ]
    await asyncio.sleep(0)
    assert isinstance(await renderer.render(request("{{ service.name }}")), Rendered)
    outcomes = await asyncio.gather(*costly, return_exceptions=True)
    tried = math.ceil(module.BURST_SECONDS / module.CHILD_SECONDS)
    assert [type(each) for each in outcomes] == [RenderFailed] * tried + [Transient] * (40 - tried)
    refused = outcomes[-1]
    assert isinstance(refused, Transient)
    assert refused.retry_after_seconds == pytest.approx(10.0)
    again = await renderer.render(request("{{ 'x' * 999999999 }}", 0, "costly"))
    assert again is outcomes[0]
    await renderer.close()
