"""Copying of HDF5 files with replacement of some datasets.

Groups, hard, soft and external links, committed datatypes, object and region references,
attributes of any type, dataspaces, storage properties and the user block are copied unchanged,
except that references and hard links point to the objects of the copy.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import h5py
import numpy as np
from h5py import h5a, h5d, h5f, h5g, h5o, h5p, h5r, h5s, h5t, h5z
from h5py._hl.filters import guess_chunk

from scitoolkit.core.errors import DataError
from scitoolkit.core.log import get_logger

log = get_logger(__name__)
_TYPES = "scitoolkit_types"
# H5O_COPY_MERGE_COMMITTED_DTYPE_FLAG of H5Opublic.h, which h5py does not define.
_MERGE_COMMITTED_TYPES = 0x20
# Writing decompressed values through a lossy filter would violate their bound. Lossless filters:
# deflate, shuffle, fletcher32, szip, lzf, blosc, lz4, bitshuffle, zstd, blosc2, bzip2.
LOSSLESS_FILTERS = frozenset({1, 2, 3, 4, 32000, 32001, 32004, 32008, 32015, 32026, 307})


@dataclass(frozen=True)
class Replacement:
    """Dataset or datasets of the copy that replace a dataset of the source.

    Args:
        linked: target of all hard links.
        described: target of references, with the attributes.
        attributes_of: the object of the source whose attributes are copied.
        without: attributes that are not copied.
    """

    linked: h5py.Dataset
    described: h5py.Dataset
    attributes_of: h5py.Dataset
    without: frozenset[str] = frozenset()


class Left(Enum):
    """Marker returned by `Replace` for a dataset that is not copied."""

    OUT = "out"


LEFT_OUT = Left.OUT
Replace = Callable[[h5py.Dataset, h5py.Group, str, "Hdf5Copy"], Replacement | Left | None]


def copy_hdf5(source: h5py.File, path: Path, replace: Replace) -> None:
    """Write a copy of a file.

    Args:
        source: open for reading.
        path: file to write.
        replace: returns the replacement of a dataset, `LEFT_OUT`, or None to copy it.

    Raises:
        DataError: the file has a user-defined link.
    """
    properties = _ordered(h5p.create(h5p.FILE_CREATE), source["/"].id.get_create_plist())
    properties.set_userblock(source.userblock_size)
    access = h5p.create(h5p.FILE_ACCESS)
    access.set_libver_bounds(h5f.LIBVER_V18, h5f.LIBVER_LATEST)
    with h5py.File(h5f.create(bytes(path), h5f.ACC_TRUNC, properties, access)) as target:
        Hdf5Copy(source, target, replace).run()
    if size := source.userblock_size:
        head = _user_block(source, size)
        with path.open("r+b") as file:
            file.write(head)


def object_key(item: Any) -> tuple[int, int]:
    """Return a key of an object of an open file that is the same for all links to it."""
    info = h5o.get_info(item.id if isinstance(item, h5py.HLObject) else item)
    return info.fileno, info.addr


class Hdf5Copy:
    """State of one copy; see `copy_hdf5`."""

    def __init__(self, source: h5py.File, target: h5py.File, replace: Replace) -> None:
        self.source, self.target, self.replace = source, target, replace
        self._links: dict[tuple[int, int], str] = {}
        self._referents: dict[tuple[int, int], str] = {}
        self._types: dict[tuple[int, int], h5t.TypeID] = {}
        self._attributes: list[tuple[Any, Any, frozenset[str]]] = []
        self._references: list[tuple[h5py.Dataset, h5py.Dataset]] = []

    def run(self) -> None:
        """Copy links and objects, then attributes and references, which require all objects."""
        self._commit_types()
        self._copy_group(self.source["/"], self.target["/"])
        for source, target, without in self._attributes:
            self._copy_attributes(source, target, without)
        for old, new in self._references:
            with _named(old.name, old.id.get_type()):
                self._redirect(old, new)
        del self.target[_TYPES]

    def type_of(self, item: h5py.Dataset) -> h5t.TypeID:
        """Return the datatype of a dataset for the copy, committed if the original is."""
        return self._in_copy(item.id.get_type())

    def refer(self, item: h5py.Dataset, target: h5py.Dataset) -> None:
        """Redirect references to an object of the source to an object of the copy."""
        self._referents[object_key(item)] = target.name

    def _commit_types(self) -> None:
        """Commit the named datatypes under a temporary group, so that datasets can use them."""
        group = self.target.create_group(_TYPES)

        def commit(_: str, item: Any) -> None:
            if isinstance(item, h5py.Datatype):
                made, name = item.id.copy(), str(len(self._types)).encode()
                made.commit(group.id, name)
                self._types[object_key(item)] = made

        self.source.visititems(commit)

    def _in_copy(self, datatype: h5t.TypeID) -> h5t.TypeID:
        if not datatype.committed():
            return datatype
        return self._types.get(object_key(datatype)) or datatype.copy()

    def _copy_group(self, source: h5py.Group, target: h5py.Group) -> None:
        self._placed(source, target.name, target)
        for name in source:
            self._copy_link(source, target, name)

    def _copy_link(self, source: h5py.Group, target: h5py.Group, name: str) -> None:
        try:
            link = source.get(name, getlink=True)
        except TypeError:
            raise DataError(
                "a user-defined link cannot be copied",
                where=f"{source.name}/{name}",
                allowed="hard, soft and external links",
            ) from None
        if not isinstance(link, h5py.HardLink):
            target[name] = link
            return
        item = source[name]
        if object_key(item) in self._links:
            target[name] = self.target[self._links[object_key(item)]]
        else:
            self._copy_object(item, target, name)

    def _copy_object(self, item: Any, target: h5py.Group, name: str) -> None:
        if isinstance(item, h5py.Group):
            order = _ordered(h5p.create(h5p.GROUP_CREATE), item.id.get_create_plist())
            made = h5g.create(target.id, _encoded(name), _links(), order)
            self._copy_group(item, h5py.Group(made))
        elif isinstance(item, h5py.Datatype):
            number = list(self._types).index(object_key(item))
            target[name] = self.target[f"{_TYPES}/{number}"]
            self._placed(item, f"{target.name.rstrip('/')}/{name}", target[name])
        else:
            self._replace_or_copy(item, target, name)

    def _replace_or_copy(self, item: h5py.Dataset, target: h5py.Group, name: str) -> None:
        replaced = self.replace(item, target, name, self)
        if replaced is None:
            self._copy_dataset(item, target, name)
        elif isinstance(replaced, Replacement):
            self._links[object_key(item)] = replaced.linked.name
            self.refer(item, replaced.described)
            self._attributes.append((replaced.attributes_of, replaced.described, replaced.without))

    def _copy_dataset(self, item: h5py.Dataset, target: h5py.Group, name: str) -> None:
        how = h5p.create(h5p.OBJECT_COPY)
        how.set_copy_object(h5o.COPY_WITHOUT_ATTR_FLAG | _MERGE_COMMITTED_TYPES)
        fill = item.id.get_create_plist().fill_value_defined()
        # HDF5 copies the address of a fill value of variable length, which the copy has not.
        if fill == h5d.FILL_VALUE_USER_DEFINED and _holds(item.id.get_type(), h5t.VLEN):
            made = create_like(item, target, name, self.type_of(item))
            if item.size:
                made[...] = item[()]
        else:
            h5o.copy(item.id, b".", target.id, _encoded(name), how, _links())
        copy = target[name]
        self._placed(item, copy.name, copy)
        if item.shape is not None and item.size and _holds(item.id.get_type(), h5t.REFERENCE):
            self._references.append((item, copy))

    def _placed(self, item: Any, place: str, target: Any) -> None:
        self._links[object_key(item)] = self._referents[object_key(item)] = place
        self._attributes.append((item, target, frozenset()))

    def _copy_attributes(self, source: Any, target: Any, without: frozenset[str]) -> None:
        for name in source.attrs:
            if name not in without:
                old = h5a.open(source.id, _encoded(name))
                with _named(f"{source.name}: attribute {name}", old.get_type()):
                    self._copy_attribute(old, target, name)

    def _copy_attribute(self, old: h5a.AttrID, target: Any, name: str) -> None:
        kind, space = old.get_type(), old.get_space()
        new = h5a.create(target.id, _encoded(name), self._in_copy(kind), space)
        if space.get_simple_extent_type() == h5s.NULL:
            return
        if _holds(kind, h5t.REFERENCE, h5t.VLEN):
            values = np.empty(old.shape, old.dtype)
            old.read(values)
            new.write(self._redirected(values))
            return
        # Opaque bytes in the type of the file: numpy has no equal of some types, and a conversion
        # would change values. The types above hold pointers into the source, which bytes would
        # copy.
        raw = np.empty(old.shape, np.dtype((np.void, kind.get_size())))
        old.read(raw, mtype=kind)
        new.write(raw, mtype=kind)

    def _redirect(self, old: h5py.Dataset, new: h5py.Dataset) -> None:
        """Write the values of a dataset with references to the objects of the copy."""
        values = np.empty(old.shape, old.dtype)  # old[()] of one compound is no array
        old.id.read(h5s.ALL, h5s.ALL, values)
        values = self._redirected(values)
        if old.id.get_type().get_class() != h5t.VLEN or not old.shape:
            new[...] = values
            return
        # h5py converts references within lists only for one list at a time.
        for index in np.ndindex(old.shape):
            new[index] = values[index]

    def _redirected(self, value: Any) -> Any:
        """Redirect references, also within arrays and compounds, to the objects of the copy."""
        if isinstance(value, h5r.Reference):
            return self._reference(value)
        if not isinstance(value, np.ndarray) or not value.dtype.hasobject:
            return value
        out = value.copy()
        if value.dtype.names:
            for name in value.dtype.names:
                out[name] = self._redirected(value[name])
        else:
            for index in np.ndindex(value.shape):
                out[index] = self._redirected(value[index])
        return out

    def _reference(self, old: h5r.Reference) -> h5r.Reference:
        referenced = h5r.dereference(old, self.source.id) if old else None
        place = None if referenced is None else self._referents.get(object_key(referenced))
        if place is None:
            return type(old)()
        if not isinstance(old, h5r.RegionReference):
            return h5r.create(self.target.id, _encoded(place), h5r.OBJECT)
        region = h5r.get_region(old, self.source.id)
        return h5r.create(self.target.id, _encoded(place), h5r.DATASET_REGION, region)


@contextlib.contextmanager
def _named(where: str, kind: h5t.TypeID) -> Iterator[None]:
    """Raise DataError with a place for types that h5py cannot convert, or ends the process on."""
    refused = DataError(
        "references, or lists of values, of a type that h5py cannot convert",
        where=where,
        fix="compress a copy of the file without it",
    )
    if any(listed and part.equal(h5t.STD_REF_DSETREG) for part, listed in _parts(kind)):
        raise refused
    try:
        yield
    except (TypeError, ValueError, RuntimeError) as error:
        if not _holds(kind, h5t.REFERENCE, h5t.VLEN):
            raise
        raise refused from error


def create_like(
    item: h5py.Dataset, parent: h5py.Group, name: str, datatype: h5t.TypeID
) -> h5py.Dataset:
    """Create an empty dataset with the shape, type and storage properties of another.

    External and virtual storage is replaced by storage in the file, because values would
    otherwise be written into the files that the original refers to. Filters that are lossy or not
    available for writing are dropped.

    Args:
        item: the dataset to imitate.
        parent: group of the new dataset.
        name: of the new dataset.
        datatype: of the new dataset.
    """
    properties = item.id.get_create_plist()
    if properties.get_layout() == h5d.VIRTUAL or properties.get_external_count():
        log.warning("%s is stored in other files; the copy contains its values", item.name)
        properties = _plain(item)
    elif properties.get_layout() == h5d.COMPACT:
        properties.set_layout(h5d.CONTIGUOUS)
    # Backwards, because removing a filter renumbers those after it.
    for number in reversed(range(properties.get_nfilters())):
        code = properties.get_filter(number)[0]
        if not usable(code):
            log.warning("%s: dropped filter %d, which is lossy or cannot write", item.name, code)
            properties.remove_filter(code)
    # Late allocation: the header of a stream is never written and must not occupy the space of the
    # original values.
    chunked = properties.get_layout() == h5d.CHUNKED
    properties.set_alloc_time(h5d.ALLOC_TIME_INCR if chunked else h5d.ALLOC_TIME_LATE)
    space = item.id.get_space()
    made = h5d.create(parent.id, _encoded(name), datatype, space, properties, _links())
    return h5py.Dataset(made)


def _plain(item: h5py.Dataset) -> h5p.PropDCID:
    properties = h5p.create(h5p.DATASET_CREATE)
    if item.shape != item.maxshape:
        properties.set_chunk(guess_chunk(item.shape, item.maxshape, item.dtype.itemsize))
    if item.fillvalue:
        properties.set_fill_value(np.array(item.fillvalue, item.dtype))
    return properties


def usable(code: int) -> bool:
    """Return whether a filter is lossless and available for writing."""
    if code not in LOSSLESS_FILTERS or not h5z.filter_avail(code):
        return False
    return bool(h5z.get_filter_info(code) & h5z.FILTER_CONFIG_ENCODE_ENABLED)


def _holds(kind: h5t.TypeID, *wanted: int) -> bool:
    """Return whether a datatype, or a part of it, is of a class; variable strings are VLEN."""
    return any(part.get_class() in wanted for part, _ in _parts(kind)) or (
        h5t.VLEN in wanted
        and any(p.get_class() == h5t.STRING and p.is_variable_str() for p, _ in _parts(kind))
    )


def _parts(kind: h5t.TypeID, in_list: bool = False) -> Iterator[tuple[h5t.TypeID, bool]]:
    """Yield a datatype and those that it consists of, and whether each is within a list (VLEN)."""
    yield kind, in_list
    if kind.get_class() in (h5t.VLEN, h5t.ARRAY):
        yield from _parts(kind.get_super(), in_list or kind.get_class() == h5t.VLEN)
    elif kind.get_class() == h5t.COMPOUND:
        for i in range(kind.get_nmembers()):
            yield from _parts(kind.get_member_type(i), in_list)


def _user_block(source: h5py.File, size: int) -> bytes:
    with open(source.filename, "rb") as file:
        return file.read(size)


def _ordered(new: Any, old: Any) -> Any:
    """Return new group properties with the creation order of `old`.

    The properties that HDF5 returns for a group also contain the addresses of its heaps, so
    creating a group with them would damage it.
    """
    new.set_link_creation_order(old.get_link_creation_order())
    new.set_attr_creation_order(old.get_attr_creation_order())
    return new


def _links() -> h5p.PropLCID:
    properties = h5p.create(h5p.LINK_CREATE)
    properties.set_char_encoding(h5t.CSET_UTF8)
    return properties


def _encoded(name: str) -> bytes:
    return name.encode("utf-8", "surrogateescape")
