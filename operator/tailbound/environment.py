"""The only reader of environment variables. Every error names the variable, its value and the remedy."""

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

Check: TypeAlias = Callable[[str], str | None]
"""A check of a value: None if it is usable, else what it has to be: "a number of bytes from 1 to 10"."""


class SettingError(ValueError):
    """An environment variable is missing or cannot be used."""


def process_variables() -> Mapping[str, str]:
    """The variables of this process."""
    return os.environ


def anything(_: str) -> None:
    """The check of a value that may be any text."""
    return


def whole_number(unit: str, most: int) -> Check:
    """The check of a number of `unit` from 1 to `most`."""

    def check(value: str) -> str | None:
        fits = value.isdecimal() and 0 < int(value) <= most
        return None if fits else f"a number of {unit} from 1 to {most}"

    return check


@dataclass(frozen=True)
class Environment:
    """The variables of a process by their types. Blanks around a value do not count."""

    variables: Mapping[str, str]
    remedy: str
    """What to do about a variable that is missing; part of a sentence."""

    def text(self, name: str, check: Check = anything, default: str = "") -> str:
        """One value; `default` where it is missing or empty. Without either: SettingError."""
        value = self._value(name) or default
        if not value:
            raise SettingError(f"{name} is not set: {self.remedy}")
        return _checked(name, value, check)

    def optional(self, name: str, check: Check = anything) -> str | None:
        """One value; None where it is missing or empty."""
        value = self._value(name)
        return _checked(name, value, check) if value else None

    def texts(self, name: str, check: Check = anything) -> tuple[str, ...]:
        """The entries of a comma-separated list; none where it is missing or empty."""
        parts = (part.strip() for part in self._value(name).split(","))
        return tuple(_checked(name, part, check) for part in parts if part)

    def required_texts(self, name: str, check: Check = anything) -> tuple[str, ...]:
        """The entries of a comma-separated list that may be empty, and may not be missing: SettingError."""
        if name not in self.variables:
            raise SettingError(f"{name} is not set: {self.remedy}")
        return self.texts(name, check)

    def number(self, name: str, unit: str, most: int) -> int:
        """A number of `unit` from 1 to `most`. Missing: SettingError."""
        return int(self.text(name, whole_number(unit, most)))

    def path(self, name: str) -> Path | None:
        """A file or folder; None where it is missing or empty."""
        value = self.optional(name)
        return None if value is None else Path(value)

    def in_any_case(self, name: str) -> str | None:
        """A value whose variable is written in upper or lower case, as those of proxies are."""
        found = [value for key, value in self.variables.items() if key.lower() == name.lower() and value]
        return found[-1] if found else None

    def _value(self, name: str) -> str:
        return self.variables.get(name, "").strip()


def _checked(name: str, value: str, check: Check) -> str:
    wanted = check(value)
    if wanted is not None:
        raise SettingError(f"{name}: {value!r} is not {wanted}")
    return value
