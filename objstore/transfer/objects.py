"""A remote that is an object storage: S3, GCS or Azure, through obstore (docs/sync.md has the layout).

Packs and attachments are objects that never change, named by their hash. A ref is an object that is replaced
only by who knows its version, so two writers can't overwrite each other; with the value stands the id of the
operation that wrote it, by which a writer knows its own value where an answer was lost. A deleted ref's
object stays and says so: there is no deletion on a condition.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256
from pathlib import Path
from typing import Any, BinaryIO, Final

from objstore.clock import new_ulid
from objstore.database import oid_in
from objstore.frames import PayloadReader
from objstore.kinds import Kind
from objstore.limits import (
    MAX_PACK_BYTES,
    MAX_REMOTE_PACKS,
    MAX_REMOTE_REFS,
    MAX_STORED_PAYLOAD_BYTES,
)
from objstore.loose import loose_name
from objstore.pack import PACK_FOLDER, PackReader, Written
from objstore.records import check_ulid
from objstore.storage import Storage
from objstore.transfer.bucket import Bucket, Conflicting, Version
from objstore.transfer.memory import Mark, Memory
from objstore.transfer.negotiate import Known, Wanted
from refs.errors import (
    BadTransfer,
    InvalidRefName,
    InvalidValue,
    LimitExceeded,
    NoSuchRemote,
    ObjectMissing,
    RefChanged,
    RemoteFailure,
)
from refs.ids import Oid, PayloadId, is_oid
from refs.names import RefName, check_ref_name

FORMAT: Final = 1
_MARKER: Final = "dag-remote.json"
_READERS: Final = 16  # refs are small: fetching them is waiting
_IDS_AT_ONCE: Final = 50_000
_PROBED: Final = "honours conditions"
_OUT: Final = "out"
_PLAIN: Final = re.compile(r"[A-Za-z0-9/_.-]", re.ASCII)
_ESCAPED: Final = re.compile(r"=([0-9A-F]{2})|(=)", re.ASCII)


class ObjectRemote:
    """See `remote.Remote`. `store` is any obstore store; its prefix is where the remote lives."""

    def __init__(self, url: str, store: Any, here: Storage, *, create: bool = False) -> None:
        """Raises `NoSuchRemote` if nothing is there, unless `create` asks for it to be made."""
        self.url, self._here = url, here
        self._bucket = Bucket(url, store)
        self.id = self._read_marker() or (self._make() if create else "")
        if not self.id:
            raise NoSuchRemote(url, "no store is there; 'dag remote add' makes one")
        self._memory = Memory(here.files, url, self.id)
        self._heads: set[Oid] = set()
        self._taken: set[Oid] = set()

    # -- the marker, and what the server must be able to do ---------------------------------------

    def _read_marker(self) -> str | None:
        found = self._bucket.read_small(_MARKER)
        if found is None:
            return None
        value = _parse(found[0])
        try:
            if value.get("format") == FORMAT:
                return check_ulid(value.get("id"), "id")
        except InvalidValue:
            pass
        raise BadTransfer(self.url, f"its {_MARKER} isn't one that this version knows")

    def _make(self) -> str:
        self._bucket.probe()
        body = json.dumps({"format": FORMAT, "id": new_ulid()}).encode()
        with contextlib.suppress(Conflicting):
            self._bucket.write(_MARKER, body, None)
        return self._read_marker() or ""  # another one may have been faster

    def check_conditions(self) -> None:
        """Try, once for each remote, whether the server honours conditions. Raises `UnsafeRemote`."""
        if not self._memory.flag(_PROBED):
            self._bucket.probe()
            self._memory.set_flag(_PROBED)

    # -- refs -------------------------------------------------------------------------------------

    def refs(self) -> Iterator[tuple[str, str]]:
        """One listing tells the versions; only what has changed since the last time is read."""
        known = self._memory.values()
        current: dict[str, tuple[str, str]] = {}
        changed: list[str] = []
        for number, (key, _, tag) in enumerate(self._bucket.list("refs/")):
            if number >= MAX_REMOTE_REFS:
                raise LimitExceeded(f"the refs of {self.url}", number + 1, MAX_REMOTE_REFS, "refs")
            name = _name_of(key)
            try:
                check_ref_name(name)
            except InvalidRefName:
                yield name, ""
                continue
            held = known.get(name)
            if held is not None and tag and held[0] == tag:
                current[name] = held
            else:
                changed.append(name)
        with ThreadPoolExecutor(_READERS) as pool:
            read = dict(zip(changed, pool.map(self._read_ref, changed), strict=True))
        for name, (value, version, _) in read.items():
            if value is None:
                yield name, ""  # it can't be told
            elif version is not None:
                current[name] = version.get("e_tag", ""), value
        self._memory.keep_values(
            {name: current[name] for name in read if name in current}, known.keys() - current.keys()
        )
        for name, (_, value) in current.items():
            if value:
                self._heads.add(Oid(value))
                yield name, value

    def _read_ref(self, name: str) -> tuple[str | None, Version | None, str]:
        """(value, version, operation) of a ref: an empty value of a deleted one, None where it can't be told."""
        found = self._bucket.read_small(_key_of(name))
        if found is None:
            return "", None, ""
        body = _parse(found[0])
        value = body.get("value", False)
        if value is None:
            value = ""
        return (value if value == "" or is_oid(value) else None), found[1], str(body.get("op", ""))

    def move(self, ref: RefName, expected: Oid | None, new: Oid | None) -> None:
        self.check_conditions()
        value, version, _ = self._read_ref(ref)
        if value is None:
            raise BadTransfer(self.url, f"{ref} holds no object id")
        if (value or None) != expected:
            raise RefChanged(ref, expected, Oid(value) if value else None)
        operation = new_ulid()
        body = json.dumps({"op": operation, "value": new}).encode()
        try:
            self._bucket.write(_key_of(ref), body, version)
        except (Conflicting, RemoteFailure) as error:
            # The answer to a write that succeeded may have been lost, and the write tried again: look whose it is.
            actual, _, by = self._read_ref(ref)
            if by != operation:
                if isinstance(error, Conflicting):
                    raise RefChanged(ref, expected, Oid(actual) if actual else None) from error
                raise

    # -- objects ----------------------------------------------------------------------------------

    def missing(self, kind: Kind, ids: Iterable[Oid]) -> set[Oid]:
        wanted = set(ids)
        if kind is Kind.NODE:
            wanted -= self._heads  # what a ref stands at is there, with all before it
        return wanted - self._memory.held(kind, wanted)

    def get(
        self, wanted: Wanted, *, again: bool = False
    ) -> Iterator[contextlib.AbstractContextManager[PackReader]]:
        for pack, size in self._packs(again=again):
            yield self._fetched(pack, size)

    def weigh(self, wanted: Wanted) -> tuple[dict[Kind, int], int]:
        return {}, sum(size for _, size in self._packs(again=False))

    def _packs(self, *, again: bool) -> list[tuple[Oid, int]]:
        """(id, size) of packs that weren't taken yet, the oldest first: so what they build on comes before."""
        known = set() if again else self._memory.packs()
        found = []
        for number, (key, meta, _) in enumerate(self._bucket.list("packs/")):
            if number >= MAX_REMOTE_PACKS:
                raise LimitExceeded(f"the packs of {self.url}", number + 1, MAX_REMOTE_PACKS, "packs")
            pack = key.removeprefix("packs/").removesuffix(".pack")
            if is_oid(pack) and pack not in known and pack not in self._taken:
                found.append((meta["last_modified"], Oid(pack), int(meta["size"])))
        return [(pack, size) for _, pack, size in sorted(found)]

    @contextlib.contextmanager
    def _fetched(self, pack: Oid, size: int) -> Iterator[PackReader]:
        files = self._here.files
        handle = files.create_temp(PACK_FOLDER)
        try:
            digest = sha256()
            self._bucket.download(f"packs/{pack}.pack", handle, min(size, MAX_PACK_BYTES), digest)
            if digest.hexdigest() != pack:
                raise BadTransfer(self.url, f"pack {pack} has another hash")
            with contextlib.closing(PackReader(files, pack, handle.name)) as reader:
                yield reader
                self._learn(reader)
            self._taken.add(pack)
        finally:
            handle.close()
            files.remove(handle.name)

    def _learn(self, reader: PackReader) -> None:
        ids: list[tuple[Kind, Oid]] = []
        for offset, size in reader.frames():
            frame = reader.frame(offset, size)
            for line in range(len(frame.lines)):
                kind = frame.kind(line)
                ids.append((kind, oid_in(frame, kind, line)))
            if len(ids) >= _IDS_AT_ONCE:
                self._memory.learn((), ids)
                ids = []
        self._memory.learn((), ids)

    def taken(self, wanted: Wanted) -> None:
        self._memory.learn(self._taken, ())

    def sent(self, wanted: Wanted, mark: Mark) -> None:
        self._memory.remember(_OUT, mark, wanted.heads, everything=wanted.calls)

    def known(self) -> Known:
        memory = self._memory
        return Known(memory.covered(_OUT), memory.mark(_OUT), memory.mark_of_all(_OUT))

    def open_payload(self, payload: PayloadId) -> BinaryIO:
        files = self._here.files
        handle = files.create_temp(PACK_FOLDER)
        try:
            files.remove(handle.name)  # open it lives on, and a crash leaves nothing
            self._bucket.download(f"payloads/{payload}.zst", handle, MAX_STORED_PAYLOAD_BYTES)
        except FileNotFoundError:
            handle.close()
            raise ObjectMissing(Kind.PAYLOAD, payload) from None
        except BaseException:
            handle.close()
            raise
        return PayloadReader(handle, payload)  # type: ignore[return-value]

    def put(self, sealed: Written | None, payloads: Collection[PayloadId]) -> int:
        if sealed is None and not payloads:
            return 0
        self.check_conditions()
        files, sent = self._here.files, 0
        for payload in payloads:
            sent += self._upload(f"payloads/{payload}.zst", loose_name(Kind.PAYLOAD, payload))
        self._memory.learn((), [(Kind.PAYLOAD, payload) for payload in payloads])
        if sealed is not None:
            assert sealed.temp is not None
            sent += self._upload(f"packs/{sealed.pack}.pack", sealed.temp)
            with contextlib.closing(PackReader(files, sealed.pack, sealed.temp)) as reader:
                self._learn(reader)
            self._memory.learn([Oid(sealed.pack)], ())
        return sent

    def _upload(self, key: str, name: str) -> int:
        return self._bucket.upload(key, Path(self._here.files.path(name)))

    def close(self) -> None:
        self._memory.close()


def _parse(raw: bytes) -> Mapping[str, Any]:
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _key_of(name: str) -> str:
    """A ref's key: what isn't a plain character is written as its bytes, so that no server changes it."""
    return "".join(
        char if _PLAIN.match(char) else "".join(f"={byte:02X}" for byte in char.encode()) for char in name
    )


def _name_of(key: str) -> str:
    """What `_key_of` wrote. Anything else gives a name that isn't allowed."""
    found = _ESCAPED.sub(lambda match: chr(int(match[1], 16)) if match[1] else "\x00", key)
    try:
        name = found.encode("latin-1").decode("utf-8")
    except UnicodeError:
        return f"{key}\x00"
    return name if _key_of(name) == key else f"{key}\x00"
