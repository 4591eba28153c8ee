"""Tensors between JSON and numpy, without a server."""

import json
from collections.abc import Sequence

import numpy as np
import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tailbound_runtime.errors import ApiError
from tailbound_runtime.json_data import decode, encode, encode_long
from tailbound_runtime.tensors import BY_ONNX_TYPE, Datatype, parse_shape

TYPES = {datatype.name: datatype for datatype in BY_ONNX_TYPE.values()}
INTEGERS = [name for name in TYPES if "INT" in name]


def decoded(name: str, shape: list[int], data: object) -> np.ndarray:
    return decode("input 'x'", TYPES[name], tuple(shape), data)


def refusal(name: str, shape: list[int], data: object) -> str:
    with pytest.raises(ApiError) as caught:
        decoded(name, shape, data)
    assert caught.value.status == 400
    assert caught.value.message.startswith("input 'x'")
    return caught.value.message


@pytest.mark.parametrize("name", INTEGERS)
def test_integers_are_exact_at_both_ends_and_refused_beyond(name: str) -> None:
    bounds = np.iinfo(TYPES[name].numpy)
    ends = [int(bounds.min), int(bounds.max)]
    array = decoded(name, [2], ends)
    assert array.dtype == TYPES[name].numpy
    assert array.tolist() == ends
    for beyond in (ends[0] - 1, ends[1] + 1):
        message = refusal(name, [3], [0, 0, beyond])
        assert "element 2" in message
        assert f"an integer from {bounds.min} to {bounds.max}" in message


WRONG_ELEMENTS: dict[str, list[tuple[object, str]]] = {
    "INT32": [(1.0, "1.0"), (True, "true"), (None, "null"), ("1", '"1"'), ({}, "an object")],
    "INT64": [(1.8446744073709552e19, "1.8446744073709552e+19")],
    "INT8": [("x" * 500, '"' + "x" * 38 + "…")],
    "FP32": [
        (True, "true"),
        (None, "null"),
        ("1.5", '"1.5"'),
        ({}, "an object"),
        (1e39, "1e+39"),
        (-1e39, "-1e+39"),
    ],
    "FP64": [(False, "false"), (None, "null"), ("1.5", '"1.5"')],
    "BOOL": [(0, "0"), (1, "1"), (1.0, "1.0"), ("true", '"true"'), (None, "null")],
    "BYTES": [(1, "1"), (None, "null"), (True, "true"), ({}, "an object")],
}


@pytest.mark.parametrize(
    ("name", "element", "as_written"),
    [(name, element, text) for name, rows in WRONG_ELEMENTS.items() for element, text in rows],
)
def test_a_wrong_element_is_named_with_its_place_and_as_it_was_written(
    name: str, element: object, as_written: str
) -> None:
    good: object = {"BOOL": True, "BYTES": "a"}.get(name, 1)
    message = refusal(name, [3], [good, element, good])
    assert f"element 1 of 'data' (row-major) is {as_written}, but {name} means" in message


@pytest.mark.parametrize(
    ("shape", "data", "values"),
    [
        ([2, 2], [1, 2, 3, 4], [[1, 2], [3, 4]]),
        ([2, 2], [[1, 2], [3, 4]], [[1, 2], [3, 4]]),
        ([2, 1, 2], [[[1, 2]], [[3, 4]]], [[[1, 2]], [[3, 4]]]),
        ([0, 2], [], []),
        ([2, 0], [[], []], [[], []]),
        ([2, 0], [], [[], []]),
        ([], [5], 5),
        ([1], [5], [5]),
    ],
)
def test_data_may_be_flat_or_nested_as_the_shape_says(shape: list[int], data: object, values: object) -> None:
    array = decoded("INT32", shape, data)
    assert array.shape == tuple(shape)
    assert array.tolist() == values


@pytest.mark.parametrize(
    ("shape", "data", "said"),
    [
        ([2, 2], [1, 2, 3], "'data' has 3 elements, but shape [2, 2] means 4"),
        ([2, 2], [], "'data' has 0 elements, but shape [2, 2] means 4"),
        ([0, 2], [1, 2], "'data' has 2 elements, but shape [0, 2] means 0"),
        ([2, 2], [[1, 2]], "'data' has 1 rows, but shape [2, 2] means 2"),
        ([2, 2], [[1, 2], [3]], "'data'[1] is a list of 1, but shape [2, 2] means a list of 2"),
        ([2, 2], [[1, 2], 3], "'data'[1] is 3, but shape [2, 2] means a list of 2"),
        ([1, 2, 1], [[[1], [2, 3]]], "'data'[0][1] is a list of 2"),
        ([4], [[1, 2, 3, 4]], "'data' has 1 rows, but shape [4] means 4"),
        ([1], [[[1]]], "element 0 of 'data' (row-major) is a list"),
        ([2], [1, [2]], "element 1 of 'data' (row-major) is a list"),
        ([], [[5]], "element 0 of 'data' (row-major) is a list"),
        ([2], "12", "'data' must be a list, not \"12\""),
        ([2], 5, "'data' must be a list, not 5"),
        ([2], None, "'data' must be a list, not null"),
        ([2**40, 2**40], [1], f"means {2**80}"),
        ([2**62, 0], [], "larger than any tensor can be"),
    ],
)
def test_data_that_disagrees_with_the_shape_is_refused(shape: list[int], data: object, said: str) -> None:
    assert said in refusal("INT32", shape, data)


@pytest.mark.parametrize("dimension", [-1, 1.0, "1", True, None, 2**63, []])
def test_a_dimension_is_a_plain_integer_that_is_not_negative(dimension: object) -> None:
    with pytest.raises(ApiError, match=r"'shape'\[1\]") as caught:
        parse_shape("input 'x'", [1, dimension])
    assert caught.value.status == 400


@pytest.mark.parametrize("shape", [None, 4, "4", {}])
def test_a_shape_is_a_list(shape: object) -> None:
    with pytest.raises(ApiError, match="'shape' must be a list"):
        parse_shape("input 'x'", shape)


def test_fp16_has_no_json_form() -> None:
    assert "no JSON form in this protocol: send a binary tensor" in refusal("FP16", [1], [1.0])


@pytest.mark.parametrize("name", ["FP32", "FP64"])
def test_what_is_no_finite_number_travels_as_a_string_both_ways(name: str) -> None:
    values = [1.5, "NaN", "Infinity", "-Infinity"]
    array = decoded(name, [4], values)
    assert array.dtype == TYPES[name].numpy
    assert np.isnan(array[1])
    assert list(array[2:]) == [np.inf, -np.inf]
    assert list(encode(TYPES[name], array)) == values
    assert orjson.loads(encode_long(TYPES[name], array)) == values
    assert "element 2 of 'data' (row-major) is \"nan\"" in refusal(name, [3], [1, "NaN", "nan"])
    assert "element 1 of 'data' (row-major) is 1e+400" not in refusal("FP32", [3], ["Infinity", 1e39, 1])


def round_trip(datatype: Datatype, values: Sequence[object]) -> list[object]:
    array = decode("x", datatype, (len(values),), orjson.loads(json.dumps(list(values))))
    return list(json.loads(orjson.dumps(encode(datatype, array), option=orjson.OPT_SERIALIZE_NUMPY)))


@pytest.mark.parametrize("name", INTEGERS)
@settings(deadline=None)
@given(data=st.data())
def test_integers_survive_the_round_trip(name: str, data: st.DataObject) -> None:
    bounds = np.iinfo(TYPES[name].numpy)
    values = data.draw(st.lists(st.integers(int(bounds.min), int(bounds.max))))
    assert round_trip(TYPES[name], values) == values


@settings(deadline=None)
@given(values=st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_fp32_survives_the_round_trip(values: list[float]) -> None:
    result = np.array(round_trip(TYPES["FP32"], values), dtype=np.float32)
    assert result.tobytes() == np.array(values, dtype=np.float32).tobytes()


@settings(deadline=None)
@given(values=st.lists(st.floats(allow_nan=False, allow_infinity=False)))
def test_fp64_survives_the_round_trip(values: list[float]) -> None:
    assert np.array(round_trip(TYPES["FP64"], values)).tobytes() == np.array(values).tobytes()


@settings(deadline=None)
@given(values=st.lists(st.one_of(st.text(), st.just("\x00"), st.just("ü" * 300))))
def test_strings_survive_the_round_trip(values: list[str]) -> None:
    assert round_trip(TYPES["BYTES"], values) == values


@settings(deadline=None)
@given(values=st.lists(st.booleans()))
def test_booleans_survive_the_round_trip(values: list[bool]) -> None:
    assert round_trip(TYPES["BOOL"], values) == values
