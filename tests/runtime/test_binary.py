"""Requests with binary tensors, without a server: what is read from them, and what is refused."""

import json
import struct
from typing import Any

import numpy as np
import pytest
from tailbound_runtime.batch import UNBATCHED
from tailbound_runtime.engine import TensorSpec
from tailbound_runtime.errors import ApiError
from tailbound_runtime.protocol import infer_response, parse_infer
from tailbound_runtime.signature import InferRequest, Signature
from tailbound_runtime.tensors import BY_ONNX_TYPE

TYPES = {datatype.name: datatype for datatype in BY_ONNX_TYPE.values()}


def signature(
    *, outputs: str = "FP32", symbols: tuple[str | None, ...] = (None, None), **inputs: str
) -> Signature:
    """Inputs of these datatypes, and y; shape [-1, -1]."""
    specs = {
        name: TensorSpec(name, TYPES[kind], (-1, -1), symbols)
        for name, kind in {**inputs, "y": outputs}.items()
    }
    return Signature("m", {name: specs[name] for name in inputs}, {"y": specs["y"]}, UNBATCHED, "test_onnx")


def entry(
    size: object, name: str = "x", datatype: str = "FP32", shape: Any = (1, 2), **more: Any
) -> dict[str, Any]:
    parameters = {} if size is None else {"parameters": {"binary_data_size": size}}
    return {"name": name, "datatype": datatype, "shape": list(shape), **parameters, **more}


def parse(
    model: Signature, inputs: list[dict[str, Any]], tail: bytes, length: int | None = -1, **more: Any
) -> InferRequest:
    """The request of a body with this JSON and these bytes; -1: the header says the JSON's length."""
    text = json.dumps({"inputs": inputs, **more}).encode()
    return parse_infer(text + tail, len(text) if length == -1 else length, model, lambda size: None)


def refusal(*arguments: Any, **more: Any) -> str:
    with pytest.raises(ApiError) as caught:
        parse(*arguments, **more)
    assert caught.value.status == 400
    return caught.value.message


def test_parts_follow_in_the_order_of_the_inputs_and_may_be_mixed_with_json() -> None:
    model = signature(x="FP32", i="INT64", t="BYTES")
    inputs = [
        entry(16, "i", "INT64"),
        entry(None, "x", data=[1.5, 2]),
        entry(11, "t", "BYTES"),
    ]
    tail = struct.pack("<qq", 2**53 + 1, -(2**63)) + b"\x02\0\0\0\xc3\xbc\x01\0\0\0a"
    request = parse(model, inputs, tail, id="7")
    assert request.inputs["i"].tolist() == [[2**53 + 1, -(2**63)]]
    assert request.inputs["x"].tolist() == [[1.5, 2]]
    assert request.inputs["t"].tolist() == [["ü", "a"]]
    assert (request.id, request.binary) == ("7", frozenset())


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("FP16", [1.5, np.nan]),
        ("FP32", [-np.inf, np.inf]),
        ("UINT64", [2**64 - 1, 0]),
        ("BOOL", [True, False]),
    ],
)
def test_any_bits_of_a_datatype_are_taken_and_given_back(kind: str, values: list[Any]) -> None:
    raw = np.array([values], TYPES[kind].numpy).tobytes()
    model = signature(x=kind, outputs=kind)
    request = parse(model, [entry(len(raw), datatype=kind)], raw, parameters={"binary_data_output": True})
    answer = infer_response(request, model, [request.inputs["x"]])
    assert bytes(answer.parts[1]) == raw
    head = json.loads(bytes(answer.parts[0]))
    assert answer.json_length == len(answer.parts[0])
    assert head["outputs"] == [
        {"name": "y", "datatype": kind, "shape": [1, 2], "parameters": {"binary_data_size": len(raw)}}
    ]


def test_zero_rows_have_no_bytes() -> None:
    request = parse(signature(x="FP32"), [entry(0, shape=(0, 2))], b"")
    assert request.inputs["x"].shape == (0, 2)


def test_an_outputs_own_parameter_counts_more_than_the_requests() -> None:
    model, asked = signature(x="FP32"), [entry(None, data=[1, 2])]
    for own, all_of_them, wanted in [(True, False, True), (False, True, False), (None, True, True)]:
        parameters = {} if own is None else {"parameters": {"binary_data": own}}
        request = parse(
            model,
            asked,
            b"",
            None,
            outputs=[{"name": "y", **parameters}],
            parameters={"binary_data_output": all_of_them},
        )
        assert request.binary == ({"y"} if wanted else set())


BAD: list[tuple[str, list[dict[str, Any]], bytes, str]] = [
    ("too-short", [entry(8)], b"1234567", "'binary_data_size' is 8, but only 7 bytes are left"),
    ("too-long", [entry(8)], b"123456789", "9 bytes follow the JSON, but the inputs' 'binary_data_size' sum"),
    ("not-the-shape", [entry(4)], b"1234", "has 4 bytes, but shape [1, 2] of FP32 means 8"),
    ("not-whole", [entry(7)], b"1234567", "has 7 bytes, but shape [1, 2] of FP32 means 8"),
    ("absurd-shape", [entry(8, shape=(2**40, 2**40))], b"12345678", f"means {2**82}"),
    ("negative", [entry(-1)], b"", "'binary_data_size' is -1, which is no number of bytes"),
    ("text", [entry("8")], b"12345678", "'binary_data_size' is \"8\""),
    ("truth", [entry(True)], b"1", "'binary_data_size' is true"),
    ("float", [entry(8.0)], b"12345678", "'binary_data_size' is 8.0"),
    ("both", [entry(8, data=[1, 2])], b"12345678", "has both 'data' and 'binary_data_size': send one"),
    ("neither", [entry(None)], b"", "'data' is missing"),
    ("shared-memory", [entry(None, parameters={"shared_memory_region": "r"})], b"", "has no shared memory"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("inputs", "tail", "said"), [case[1:] for case in BAD], ids=[case[0] for case in BAD]
)
def test_a_binary_tensor_that_is_not_as_announced_is_refused(
    inputs: list[dict[str, Any]], tail: bytes, said: str
) -> None:
    assert said in refusal(signature(x="FP32"), inputs, tail)


@pytest.mark.parametrize(
    ("raw", "said"),
    [
        (b"\x01\0\0\0a", "ends before its 2 elements do"),
        (b"\x09\0\0\0a\0\0\0\0", "ends before its element 0 does"),
        (b"\xff\xff\xff\xffa\0\0\0", "ends before its element 0 does"),
        (b"\x01\0\0\0a\0\0\0\0b", "1 bytes follow the last of the 2 elements"),
        (b"\x01\0\0\0\xff\0\0\0\0", "element 0 is no UTF-8"),
    ],
)
def test_texts_that_do_not_add_up_are_refused(raw: bytes, said: str) -> None:
    assert said in refusal(signature(x="BYTES"), [entry(len(raw), datatype="BYTES")], raw)


def test_a_byte_that_is_no_truth_value_is_named() -> None:
    assert "element 1 is the byte 2" in refusal(signature(x="BOOL"), [entry(2, datatype="BOOL")], b"\x01\x02")


def test_the_header_must_not_say_more_than_there_is_and_must_be_there() -> None:
    model = signature(x="FP32")
    assert "is 9999, but the body has" in refusal(model, [entry(8)], b"12345678", 9999)
    assert "the request body is not JSON" in refusal(model, [entry(8)], b"12345678", None)
    assert "'x' is a binary tensor, but the header" in refusal(model, [entry(0)], b"", None)


def raw(model: Signature, body: bytes) -> InferRequest:
    return parse_infer(body, 0, model, lambda size: None)


def test_a_raw_body_is_the_only_input_and_all_outputs_come_as_binary_tensors() -> None:
    values = np.array([[1, 2, 3]], np.float32)
    request = raw(signature(x="FP32"), values.tobytes())
    assert np.array_equal(request.inputs["x"], values)
    assert (request.outputs, request.binary, request.id) == (("y",), frozenset({"y"}), None)
    assert raw(signature(x="BYTES"), "ü".encode()).inputs["x"].tolist() == [["ü"]]


@pytest.mark.parametrize(
    ("model", "body", "said"),
    [
        (signature(x="FP32", z="FP32"), b"1234", "but this model takes 'x', 'z'"),
        (signature(x="FP32"), b"12345", "has 5 bytes, but shape [1, 1] of FP32 means 4"),
        (signature(x="BYTES"), b"\xff", "element 0 is no UTF-8"),
    ],
    ids=["two-inputs", "not-whole", "no-text"],
)
def test_a_raw_body_that_is_no_input_is_refused(model: Signature, body: bytes, said: str) -> None:
    with pytest.raises(ApiError) as caught:
        raw(model, body)
    assert (caught.value.status, said in caught.value.message) == (400, True), caught.value.message


def test_sizes_that_the_model_calls_by_one_name_have_to_be_equal() -> None:
    model = signature(x="FP32", z="FP32", symbols=("n", None))
    inputs = [entry(None, data=[1, 2]), entry(None, "z", shape=(2, 1), data=[1, 2])]
    said = "input 'z' has shape [2, 1], but its size 'n' is 1 in input 'x', and the model wants one size"
    assert said in refusal(model, inputs, b"", None)


def test_fp16_has_to_be_asked_for_as_a_binary_tensor() -> None:
    model = signature(x="FP32", outputs="FP16")
    assert "has no JSON form in this protocol: ask for it" in refusal(
        model, [entry(None, data=[1, 2])], b"", None
    )
