"""The demo prepares files exactly as Magika does, and reads the model's answer right."""

import magika
import numpy as np
import onnxruntime
import pytest

from e2e.demo import filetypes, samples

FILES = samples.files()


@pytest.fixture(scope="module")
def session() -> onnxruntime.InferenceSession:
    return onnxruntime.InferenceSession(filetypes.model_bytes())


@pytest.mark.parametrize("name", list(FILES))
def test_a_sample_is_recognised_as_magika_itself_does(
    name: str, session: onnxruntime.InferenceSession
) -> None:
    tensor = filetypes.request(FILES[name])["inputs"][0]
    data = np.array(tensor["data"], dtype=np.int32).reshape(tensor["shape"])
    (scores,) = session.run(None, {tensor["name"]: data})
    found = filetypes.guess({"outputs": [{"data": scores.flatten().tolist()}]})
    expected = filetypes.reference(FILES[name])
    assert found.label == expected.label
    assert found.score == pytest.approx(expected.score, abs=1e-3)


@pytest.mark.parametrize(
    ("content", "head", "tail"),
    [
        (b"  abc  ", b"abc  ", b"  abc"),
        (b"x" * 5000, b"x" * 1024, b"x" * 1024),
        (b" " * 4096 + b"y" * 10, b"", b" " * 1014 + b"y" * 10),
    ],
)
def test_features_are_both_ends_of_the_file(content: bytes, head: bytes, tail: bytes) -> None:
    numbers = filetypes.features(content)
    padding = [filetypes.PADDING]
    assert numbers[:1024] == list(head) + padding * (1024 - len(head))
    assert numbers[1024:] == padding * (1024 - len(tail)) + list(tail)


def test_an_answer_of_another_model_is_refused() -> None:
    with pytest.raises(ValueError, match="holds 2 scores, and the model has 214 labels"):
        filetypes.guess({"outputs": [{"data": [0.5, 0.5]}]})


def test_the_samples_are_of_many_kinds() -> None:
    assert len({filetypes.reference(content).label for content in FILES.values()}) >= 12


def test_the_pinned_model_is_the_installed_one() -> None:
    assert magika.Magika().get_model_name() == "standard_v3_3"
    assert filetypes.model_bytes()[:1] == b"\x08"
