"""The wire form of what a gateway says about one service."""

import pytest
from pydantic import ValidationError
from tailbound.api.traffic import RequestClasses, ServiceObservation


def test_counters_are_written_in_camel_case_and_read_back() -> None:
    counted = RequestClasses(good=5, slow=4, timed_out=3, shed=6, failed=2, abandoned=1, other=7)
    said = ServiceObservation(counters={"churn-r1-abc": counted}).model_dump_json(by_alias=True)
    assert (
        '"churn-r1-abc":{"good":5,"slow":4,"timedOut":3,"shed":6,"failed":2,"abandoned":1,"other":7}' in said
    )
    assert ServiceObservation.model_validate_json(said).counters == {"churn-r1-abc": counted}


def test_an_older_gateway_says_nothing_about_counters() -> None:
    assert ServiceObservation.model_validate_json("{}").counters is None


def test_nothing_counted_is_told_apart_from_not_read() -> None:
    assert ServiceObservation.model_validate_json('{"counters": {}}').counters == {}


def test_a_class_that_an_answer_leaves_out_has_counted_nothing() -> None:
    assert RequestClasses.model_validate_json('{"good": 1}') == RequestClasses(good=1)


def test_a_negative_count_is_refused() -> None:
    with pytest.raises(ValidationError):
        RequestClasses.model_validate_json('{"timedOut": -1}')
