"""Names and places of a cluster."""

import pytest

from e2e.cluster.layout import Layout


@pytest.mark.parametrize("name", ["", "Upper", "9first", "a_b", "thirteen-long", "a/b", ".."])
def test_name_that_no_interface_could_carry_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is not 1 to 12 lowercase letters"):
        Layout(name)


@pytest.mark.parametrize("name", ["a", "tailbound", "twelve-chars"])
def test_interface_fits_the_kernels_15_characters(name: str) -> None:
    assert len(Layout(name).host_interface) <= 15


def test_clusters_of_different_names_share_nothing() -> None:
    first, second = Layout("tailbound"), Layout("second")
    for attribute in ("state", "lock", "network_namespace", "host_interface", "control_group", "subnet"):
        assert getattr(first, attribute) != getattr(second, attribute)


def test_state_is_below_the_xdg_state_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/somewhere")
    assert str(Layout("x").state) == "/somewhere/tailbound/x"
