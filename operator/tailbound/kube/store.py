"""An in-memory copy of one kind, fed by watches, full lists and the responses of our own writes.

The three arrive in any order, so the newer resourceVersion wins, over deletions too: what was under way when
an object went does not bring it back. A deletion has a version of its own; an object that only left a label
selector is reported as deleted with the version that it still has, and reading it brings it back.
"""

from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence, Set

from tailbound.kube.objects import Key, key_of, slim, uid_of, version_of
from tailbound.objects.fields import Object

# Deletions are remembered this many deletions long: a list or a response that was under way when the object
# went is answered within seconds.
REMEMBERED_DELETIONS = 10_000


def _no_index(_: Object) -> Iterable[Hashable]:
    return ()


class ObjectStore:
    """Objects by namespace and name, and by whatever `index` says.

    `on_change(old, new)` is called after every difference; one of them is None when an object comes or goes.
    """

    def __init__(
        self,
        on_change: Callable[[Object | None, Object | None], None] | None = None,
        index: Callable[[Object], Iterable[Hashable]] = _no_index,
    ) -> None:
        self._objects: dict[Key, Object] = {}
        self._index: dict[Hashable, dict[Key, Object]] = {}
        self._deleted: dict[str, int] = {}
        self._overtaken: set[Key] = set()
        """Objects whose version is of before the restore of a backup: any other one is newer."""
        self.newest = 0
        """The greatest version that was seen."""
        self._listeners: list[Callable[[Object | None, Object | None], None]] = []
        self._keys_of = index
        if on_change is not None:
            self._listeners.append(on_change)

    def subscribe(self, on_change: Callable[[Object | None, Object | None], None]) -> None:
        """Call `on_change(old, new)` after every later difference."""
        self._listeners.append(on_change)

    def __len__(self) -> int:
        return len(self._objects)

    def __iter__(self) -> Iterator[Object]:
        return iter(tuple(self._objects.values()))

    def get(self, namespace: str, name: str) -> Object | None:
        """The object as last seen, or None."""
        return self._objects.get((namespace, name))

    def indexed(self, value: Hashable) -> tuple[Object, ...]:
        """Every object that `index` puts under `value`, in order of namespace and name."""
        bucket = self._index.get(value, {})
        return tuple(bucket[key] for key in sorted(bucket))

    def upsert(self, obj: Object) -> bool:
        """Take in a state of an object; False if a newer one, or its deletion, is known already."""
        key = key_of(obj)
        old = self._objects.get(key)
        version = version_of(obj)
        self.newest = max(self.newest, version)
        if version < self._deleted.get(uid_of(obj), -1) or (old is not None and version <= self._known(key)):
            return False
        self._put(key, old, slim(obj))
        return True

    def overtake(self, newest: int, resource_version: str) -> None:
        """Forget all versions if those of the API server have gone back.

        Call it before a list's objects are taken in, with its version and what `newest` was when it was
        asked for.
        """
        if int(resource_version) < newest:
            self._deleted.clear()
            self._overtaken = set(self._objects)
            self.newest = 0

    def take(self, objects: Iterable[Object]) -> int:
        """Take in the state of several objects; returns the number of differences."""
        return sum([self.upsert(obj) for obj in objects])

    def remove(self, obj: Object, version: int | None = None) -> bool:
        """Take in a deletion, which happened at `version` (default: the object's own, as in a watch event).

        False if another or a newer object of that name is there, or none.
        """
        gone_at = version_of(obj) if version is None else version
        uid = uid_of(obj)
        self._bury(uid, gone_at)
        key = key_of(obj)
        old = self._objects.get(key)
        if old is None or uid_of(old) != uid or self._known(key) > gone_at:
            return False
        self._put(key, old, None)
        return True

    def gone(self, namespace: str, name: str, uid: str) -> bool:
        """Take in that an object is gone since some later version than the known one. False if not here."""
        known = self.get(namespace, name)
        return known is not None and uid_of(known) == uid and self.remove(known, version_of(known) + 1)

    def replace(self, objects: Sequence[Object], resource_version: str, namespace: str | None = None) -> int:
        """Take in a full list (of one namespace): what it lacks is gone, unless newer than the list.

        Returns the number of differences.
        """
        listed = {key_of(obj) for obj in objects}
        return self.keep(listed, resource_version, namespace) + self.take(objects)

    def keep(self, listed: Set[Key], resource_version: str, namespace: str | None = None) -> int:
        """Take in that a list (of one namespace) has only these: others are gone, unless newer than the list.

        Returns the number of differences.
        """
        version = int(resource_version)
        missing = [
            obj for key, obj in self._objects.items() if key not in listed and namespace in (None, key[0])
        ]
        return sum([self.remove(obj, version) for obj in missing])

    def _known(self, key: Key) -> int:
        """The version of a known object; less than any where it is overtaken."""
        return -1 if key in self._overtaken else version_of(self._objects[key])

    def _put(self, key: Key, old: Object | None, new: Object | None) -> None:
        self._overtaken.discard(key)
        if old is not None:
            for value in self._keys_of(old):
                bucket = self._index[value]
                del bucket[key]
                if not bucket:
                    del self._index[value]
        if new is None:
            del self._objects[key]
        else:
            self._objects[key] = new
            for value in self._keys_of(new):
                self._index.setdefault(value, {})[key] = new
        for listener in self._listeners:
            listener(old, new)

    def _bury(self, uid: str, version: int) -> None:
        self.newest = max(self.newest, version)
        self._deleted[uid] = max(version, self._deleted.pop(uid, version))
        if len(self._deleted) > REMEMBERED_DELETIONS:
            del self._deleted[next(iter(self._deleted))]
