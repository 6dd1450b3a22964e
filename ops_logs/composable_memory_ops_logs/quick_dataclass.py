"""The standard `dataclass`, created in a quarter of the time.

A search defines some 200 value classes before it begins; compiling their seven methods one by one took a
seventh of the whole command. Here only `__init__` is compiled, on first use, and the other methods are
closures.
"""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from operator import attrgetter
from reprlib import recursive_repr
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

Method = Callable[..., Any]
Field = dataclasses.Field[Any]
_standard: Any = dataclasses.dataclass  # noqa: TID251 - the only place that needs it

if TYPE_CHECKING:
    from dataclasses import dataclass  # noqa: TID251 - as type checkers see it
else:

    def dataclass(
        *,
        frozen: bool = False,
        slots: bool = False,
        kw_only: bool = False,
        eq: bool = True,
    ) -> Callable[[type], type]:
        """Return a decorator equivalent to the standard one."""
        return partial(_made, frozen=frozen, slots=slots, kw_only=kw_only, eq=eq)


def _made(cls: type, *, frozen: bool, slots: bool, kw_only: bool, eq: bool) -> Any:
    own = dict(cls.__dict__)
    # The standard one compiles two methods for frozen classes, and requires frozen only of subclasses.
    frozen_too = frozen and dataclasses.is_dataclass(cls)
    made = _standard(cls, init=False, repr=False, eq=False, slots=slots, kw_only=kw_only, frozen=frozen_too)
    made.__dataclass_params__.frozen = frozen  # so that a frozen class may be derived from it
    fields = dataclasses.fields(made)
    if eq and not frozen and "__hash__" not in own:
        made.__hash__ = None
    for name, method in _methods(made, fields, frozen=frozen, eq=eq).items():
        if own.get(name) is None:  # a class with its own `__eq__` has None for `__hash__`
            method.__name__, method.__qualname__ = name, f"{made.__qualname__}.{name}"
            setattr(made, name, method)
    if "__init__" not in own:
        made.__init__ = _CompiledWhenUsed(made, fields)
    return made


class _CompiledWhenUsed:
    """Stands in for `__init__` until its first use: most classes of a program are never instantiated."""

    def __init__(self, made: Any, fields: Sequence[Field]) -> None:
        self._made, self._fields = made, fields

    def __get__(self, one: object, of: object = None) -> Any:
        init = _init(self._made, self._fields)
        init.__qualname__ = f"{self._made.__qualname__}.__init__"
        self._made.__init__ = init
        return init if one is None else init.__get__(one)


def _methods(made: Any, fields: Sequence[Field], *, frozen: bool, eq: bool) -> Mapping[str, Method]:
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

    methods: dict[str, Method] = {"__repr__": text}
    if eq:
        methods["__eq__"] = equal
    if eq and frozen:
        methods["__hash__"] = hash_of
    if frozen:
        methods["__setattr__"] = refuse_to_set
        methods["__delattr__"] = refuse_to_delete
    if frozen and "__slots__" in made.__dict__ and "__getstate__" not in made.__dict__:
        methods["__setstate__"] = take_state
    return methods


def _values(names: Iterable[str]) -> Callable[[object], tuple[object, ...]]:
    """Return a function that reads these attributes as a tuple, unlike `attrgetter` also for one name."""
    read = list(names)
    return attrgetter(*read, read[0]) if read else lambda _: ()


def _init(made: Any, fields: Sequence[Field]) -> Method:
    """Compile `__init__`, the one method that is called often.

    In frozen classes it sets values through the slot descriptors: `object.__setattr__` takes half as long
    again, as it has to look them up.
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
            value = name if one.init else f"_default_{name}"
        elif one.default_factory is not dataclasses.MISSING:
            names[f"_make_{name}"] = one.default_factory
            parameter = f"{name}=_NOT_GIVEN"
            value = f"_make_{name}()" + (f" if {name} is _NOT_GIVEN else {name}" if one.init else "")
        elif not one.init:
            continue
        if one.init:
            (by_name if one.kw_only else positional).append(parameter)
        if not made.__dataclass_params__.frozen:
            lines.append(f"self.{name} = {value}")
        elif (set_slot := getattr(getattr(made, name, None), "__set__", None)) is not None:
            names[f"_set_{name}"] = set_slot
            lines.append(f"_set_{name}(self, {value})")
        else:
            lines.append(f"self.__dict__[{name!r}] = {value}")
    then = "self.__post_init__()" if hasattr(made, "__post_init__") else "pass"
    parameters = ", ".join(["self", *positional, *(["*", *by_name] if by_name else [])])
    exec(f"def __init__({parameters}):\n " + "\n ".join([*lines, then]), names)  # noqa: S102 - names of fields
    init: Method = names["__init__"]
    init.__annotations__ = {one.name: one.type for one in fields if one.init} | {"return": None}
    return init
