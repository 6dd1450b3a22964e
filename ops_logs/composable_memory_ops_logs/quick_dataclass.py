"""The standard `dataclass`, made in a quarter of the time.

A search defines some 200 values before it begins; writing and compiling their seven methods one by one took
a seventh of the whole command. Here only `__init__` is compiled, when needed, and the others are closures.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

Method = Callable[..., Any]
Field = dataclasses.Field[Any]
_standard: Any = dataclasses.dataclass  # noqa: TID251 - the only place that needs it

if TYPE_CHECKING:
    from dataclasses import dataclass  # noqa: TID251 - what it is to a type checker
else:

    def dataclass(
        *,
        frozen: bool = False,
        slots: bool = False,
        kw_only: bool = False,
        eq: bool = True,
        order: bool = False,
    ) -> Callable[[type], type]:
        """Return a decorator that makes of a class what the standard one makes of it.

        Quick are frozen classes with slots whose bases are no dataclasses; the others go to the standard one.
        """

        def make(cls: type) -> type:
            if frozen and slots and eq and not order and not dataclasses.is_dataclass(cls):
                return _frozen(cls, kw_only=kw_only)
            return _standard(cls, frozen=frozen, slots=slots, kw_only=kw_only, eq=eq, order=order)

        return make


def _frozen(cls: type, *, kw_only: bool) -> Any:
    made = _standard(cls, init=False, repr=False, eq=False, slots=True, kw_only=kw_only)
    made.__dataclass_params__.frozen = True  # so that a frozen class may be derived from it
    fields = dataclasses.fields(made)
    for name, method in _methods(made, fields).items():
        if cls.__dict__.get(name) is None:  # with `__eq__` of its own, a class has None for `__hash__`
            method.__name__, method.__qualname__ = name, f"{made.__qualname__}.{name}"
            setattr(made, name, method)
    if wrong := [one.name for one in fields if not one.init and _has_default(one)]:
        raise TypeError(f"{wrong[0]}: a field that `__init__` does not take can have no default here")
    if "__init__" not in cls.__dict__:
        made.__init__ = _CompiledWhenUsed(made, fields)
    return made


class _CompiledWhenUsed:
    """Stands for `__init__` until it is first looked up: most values of a program are never made."""

    def __init__(self, made: Any, fields: Sequence[Field]) -> None:
        self._made, self._fields = made, fields

    def __get__(self, one: object, of: object = None) -> Any:
        init = _init(self._made, self._fields)
        init.__qualname__ = f"{self._made.__qualname__}.__init__"
        self._made.__init__ = init
        return init if one is None else init.__get__(one)


def _methods(made: Any, fields: Sequence[Field]) -> Mapping[str, Method]:
    names = {one.name for one in fields}
    shown = [one.name for one in fields if one.repr]
    compared = _values(one.name for one in fields if one.compare)
    hashed = _values(one.name for one in fields if (one.compare if one.hash is None else one.hash))

    def equal(self: object, other: object) -> bool:
        return compared(self) == compared(other) if other.__class__ is self.__class__ else NotImplemented

    def hash_of(self: object) -> int:
        return hash(hashed(self))

    @recursive_repr()
    def text(self: object) -> str:
        return f"{type(self).__qualname__}({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"

    def refuse_to_set(self: object, name: str, value: object) -> None:
        if type(self) is made or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")
        super(made, self).__setattr__(name, value)

    def refuse_to_delete(self: object, name: str) -> None:
        if type(self) is made or name in names:
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")
        super(made, self).__delattr__(name)

    def take_state(self: object, state: tuple[None, Mapping[str, object]]) -> None:  # of a copy or a pickle
        for name, value in state[1].items():
            object.__setattr__(self, name, value)

    return {
        "__eq__": equal,
        "__hash__": hash_of,
        "__repr__": text,
        "__setattr__": refuse_to_set,
        "__delattr__": refuse_to_delete,
        "__setstate__": take_state,
    }


def _has_default(field: Field) -> bool:
    return not (field.default is field.default_factory is dataclasses.MISSING)


def _values(names: Iterable[str]) -> Callable[[object], tuple[object, ...]]:
    """Return what reads these attributes as a tuple; `attrgetter` would not make one of a single value."""
    read = list(names)
    return attrgetter(*read, read[0]) if read else lambda _: ()


def _init(made: Any, fields: Sequence[Field]) -> Method:
    """Compile `__init__`, the one method that is called often.

    It sets by the descriptors of the slots: `object.__setattr__` has to find them first, half as slow again.
    """
    names: dict[str, Any] = {"_NOT_GIVEN": object()}
    positional: list[str] = []
    by_name: list[str] = []
    lines = []
    for one in fields:
        name = value = parameter = one.name
        if one.default is not dataclasses.MISSING:
            names[f"_default_{name}"] = one.default
            parameter = f"{name}=_default_{name}"
        elif one.default_factory is not dataclasses.MISSING:
            names[f"_make_{name}"] = one.default_factory
            parameter = f"{name}=_NOT_GIVEN"
            value = f"_make_{name}() if {name} is _NOT_GIVEN else {name}"
        if one.init:
            (by_name if one.kw_only else positional).append(parameter)
            names[f"_set_{name}"] = getattr(made, name).__set__
            lines.append(f"_set_{name}(self, {value})")
    then = "self.__post_init__()" if hasattr(made, "__post_init__") else "pass"
    parameters = ", ".join(["self", *positional, *(["*", *by_name] if by_name else [])])
    exec(f"def __init__({parameters}):\n " + "\n ".join([*lines, then]), names)  # noqa: S102 - names of fields
    init: Method = names["__init__"]
    init.__annotations__ = {one.name: one.type for one in fields if one.init} | {"return": None}
    return init
