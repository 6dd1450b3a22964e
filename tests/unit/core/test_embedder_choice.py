"""Which embedding provider serves: the order of the automatic choice, what stops it, and who stands in."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from pydantic import Field, SecretStr

from composable_memory.config.layers import LoadedSettings, load_settings
from composable_memory.config.settings import SettingsModel
from composable_memory.errors import ConfigError, EmbedderUnavailable
from composable_memory.interfaces import EmbedderAdapter, EmbedderServices, EmbedderSpec
from composable_memory.registry import Found, Offers, Registry
from composable_memory.runtime.embedder_choice import (
    EmbedderChoice,
    PassedOver,
    choose_embedder,
    plan_embedder,
)
from composable_memory.testing import FIXED_NOW
from composable_memory.testing.in_memory import HashEmbedder
from composable_memory_adapters.embedders import AUTO, AUTO_REMOTE
from composable_memory_ops_logs import MemorySink, OpsLog

EVERYBODY = ("gemini", "local", "mistral", "openai", "stranger", "voyage", "wordllama")
LOCAL = ("local", "stranger", "wordllama")
ORDERS = {"auto": AUTO, "auto-remote": AUTO_REMOTE}


class ProviderSettings(SettingsModel):
    """Settings of the providers of these tests."""

    model: str = Field(default="standard", max_length=20)
    api_key: SecretStr | None = None
    model_path: str | None = None


class Named(HashEmbedder):
    """An embedder with the name and the model it was asked for under."""

    def __init__(self, provider: str, model: str) -> None:
        super().__init__(8)
        self.id = provider
        self.model = model


def provider(
    id_: str, *, breaks: bool = False, missing: str | None = None, lacks_nothing: bool = False
) -> EmbedderSpec:
    """Return a provider that needs a key, a local one a path; one that `breaks` cannot be opened."""

    @asynccontextmanager
    async def opening(
        settings: ProviderSettings, services: EmbedderServices
    ) -> AsyncIterator[EmbedderAdapter]:
        if breaks:
            raise EmbedderUnavailable(id_, settings.model, "it is broken", "mend it")
        yield Named(id_, settings.model)

    def lacks(settings: ProviderSettings, services: EmbedderServices) -> str | None:
        if id_ in {"wordllama", "stranger"} or lacks_nothing:
            return None
        given = settings.model_path if id_ == "local" else settings.api_key
        return None if given else f"{id_} has no key"

    return EmbedderSpec(
        id=id_,
        summary=id_,
        settings=ProviderSettings,
        open=opening,
        local=id_ in LOCAL,
        missing=lambda: missing,
        lacks=lacks,
    )


class House:
    """A place where providers are installed and settings are made."""

    def __init__(self, folder: Path, ops_log: OpsLog) -> None:
        self.folder = folder
        self.services = EmbedderServices(
            state_dir=folder, environ={}, ops_log=ops_log, clock=lambda: FIXED_NOW
        )
        self.specs = {id_: provider(id_) for id_ in EVERYBODY}

    @property
    def registry(self) -> Registry:
        return Registry(
            orders=ORDERS,
            embedders=Offers(
                Found(id=id_, origin="test", spec=spec, missing=spec.missing())
                for id_, spec in self.specs.items()
            ),
        )

    def load(self, overrides: Mapping[str, object]) -> LoadedSettings:
        environ = {"XDG_CONFIG_HOME": str(self.folder / "nowhere")}
        return load_settings(self.folder, overrides=overrides, environ=environ)

    async def choose(self, asked: str = "auto", *, ready: str = "", **embedding: object) -> EmbedderChoice:
        """Choose among the providers; those that are `ready` have a key and a path."""
        providers = {id_: {"api_key": "sesame", "model_path": "m.gguf"} for id_ in ready.split()}
        given = embedding.pop("providers", {})
        assert isinstance(given, Mapping)
        config = {"provider": asked, "providers": {**providers, **given}, **embedding}
        loaded = await asyncio.to_thread(self.load, {"embedding": config})
        async with AsyncExitStack() as stack:
            return await choose_embedder(loaded, self.registry, self.services, stack)


@pytest.fixture
def house(tmp_path: Path, ops_log: OpsLog) -> House:
    return House(tmp_path, ops_log)


def chosen(choice: EmbedderChoice) -> str | None:
    return choice.embedder.id if choice.embedder else None


# --- automatically ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "ready", "expected"),
    [
        ("auto", "", "wordllama"),
        ("auto", "openai gemini voyage mistral", "wordllama"),
        ("auto", "local openai", "local"),
        ("auto-remote", "", "wordllama"),
        ("auto-remote", "mistral", "mistral"),
        ("auto-remote", "mistral voyage", "voyage"),
        ("auto-remote", "mistral voyage gemini", "gemini"),
        ("auto-remote", "mistral voyage gemini openai", "openai"),
        ("auto-remote", "mistral voyage gemini openai local", "local"),
    ],
)
async def test_the_first_that_is_ready_is_taken(house: House, asked: str, ready: str, expected: str) -> None:
    assert chosen(await house.choose(asked, ready=ready)) == expected


async def test_those_passed_over_are_named_with_what_they_lack(house: House) -> None:
    choice = await house.choose("auto-remote", ready="gemini")

    assert choice.considered == (
        PassedOver(id="local", reason="local has no key"),
        PassedOver(id="openai", reason="openai has no key"),
    )
    assert choice.problem is None


async def test_a_local_provider_of_another_package_comes_after_ours(house: House) -> None:
    house.specs["wordllama"] = provider("wordllama", missing="not installed")

    assert chosen(await house.choose()) == "stranger"


async def test_without_anybody_every_reason_is_told(house: House) -> None:
    house.specs = {
        "local": provider("local"),
        "wordllama": provider("wordllama", missing="it is not installed; run `pip install wordllama`"),
        "openai": provider("openai"),
    }
    choice = await house.choose(ready="openai")

    assert chosen(choice) is None
    facts = ("local: local has no key", "wordllama: it is not installed", "`pip install wordllama`")
    assert [fact for fact in facts if fact not in str(choice.problem)] == []


async def test_where_nothing_is_installed_that_is_said(house: House) -> None:
    house.specs = {}

    assert (await house.choose()).problem == "no local embedding provider is installed"


async def test_one_that_is_ready_and_cannot_be_opened_is_not_passed_over_in_silence(house: House) -> None:
    """Another provider means another index: the user decides, or names a fallback."""
    house.specs["local"] = provider("local", breaks=True)
    choice = await house.choose(ready="local")

    assert chosen(choice) is None
    assert "it is broken; mend it" in str(choice.problem)
    assert [one.id for one in choice.considered] == ["local"]


async def test_whether_texts_stay_on_this_machine_is_told(house: House) -> None:
    assert (await house.choose()).is_local
    assert not (await house.choose("auto-remote", ready="openai")).is_local


# --- by name ------------------------------------------------------------------------------------------------


async def test_a_named_provider_is_opened_whatever_it_lacks(house: House) -> None:
    assert chosen(await house.choose("local")) == "local"


async def test_a_model_is_that_of_the_named_provider_alone(house: House) -> None:
    house.specs["openai"] = provider("openai", breaks=True)
    first = await house.choose("mistral", model="large", providers={"mistral": {"model": "small"}})
    second = await house.choose("openai", model="large", fallback="mistral")

    assert first.embedder is not None
    assert second.embedder is not None
    assert (first.embedder.model, second.embedder.model) == ("large", "standard")


@pytest.mark.parametrize("asked", ["auto", "auto-remote"])
async def test_a_model_without_a_provider_is_refused(house: House, asked: str) -> None:
    with pytest.raises(ConfigError, match=r"setting memory\.embedding\.model \(from the caller\): .*a model"):
        await house.choose(asked, model="large")


async def test_a_named_provider_never_changes_silently(house: House) -> None:
    house.specs["openai"] = provider("openai", breaks=True)
    choice = await house.choose("openai", ready="openai gemini local")

    assert (chosen(choice), choice.fallback) == (None, None)
    assert "it is broken" in str(choice.problem)


async def test_a_named_provider_that_is_not_there_tells_what_is_missing(house: House) -> None:
    house.specs["openai"] = provider("openai", missing="no httpx")

    assert (await house.choose("openai")).problem == "openai: no httpx"


async def test_no_provider_is_a_choice_too(house: House, events: MemorySink) -> None:
    choice = await house.choose("none", fallback="wordllama", model="large")

    assert choice.problem == "embedding is off (memory.embedding.provider: none)"
    assert list(events.events) == []


# --- the fallback -------------------------------------------------------------------------------------------


async def test_the_fallback_stands_in_and_says_for_whom_and_why(house: House, events: MemorySink) -> None:
    house.specs["openai"] = provider("openai", breaks=True)
    choice = await house.choose("openai", ready="openai", fallback="wordllama")

    assert chosen(choice) == "wordllama"
    assert choice.problem is None
    assert choice.fallback is not None
    assert choice.fallback.from_ == "openai"
    assert "it is broken; mend it" in str(choice.fallback.reason)
    assert [(event.action, event.status) for event in events.events] == [("backend.degraded", "partial")]


async def test_the_fallback_of_an_automatic_choice_stands_in_for_the_one_that_was_chosen(
    house: House,
) -> None:
    house.specs["gemini"] = provider("gemini", breaks=True)
    choice = await house.choose("auto-remote", ready="gemini mistral", fallback="mistral")

    assert chosen(choice) == "mistral"
    assert choice.fallback is not None
    assert choice.fallback.from_ == "gemini"


async def test_a_fallback_may_be_chosen_automatically(house: House) -> None:
    house.specs["openai"] = provider("openai", breaks=True)

    assert chosen(await house.choose("openai", fallback="auto")) == "wordllama"


async def test_when_both_fail_both_reasons_are_told(house: House, events: MemorySink) -> None:
    house.specs |= {"openai": provider("openai", breaks=True), "mistral": provider("mistral", missing="gone")}
    choice = await house.choose("openai", fallback="mistral")

    assert (chosen(choice), choice.fallback) == (None, None)
    facts = ("openai (standard)", "it is broken; mend it", "'mistral'", "mistral: gone")
    assert [fact for fact in facts if fact not in str(choice.problem)] == []
    assert [one.id for one in choice.considered] == ["openai", "mistral"]
    assert [(event.action, event.status) for event in events.events] == [("backend.degraded", "failure")]


# --- what cannot be right -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("embedding", "key", "nearest"),
    [
        ({"asked": "opnai"}, "memory.embedding.provider", "openai"),
        ({"asked": "auto-remot"}, "memory.embedding.provider", "auto-remote"),
        ({"fallback": "misstral"}, "memory.embedding.fallback", "mistral"),
        ({"providers": {"voyager": {"model": "x"}}}, "memory.embedding.providers.voyager", "voyage"),
        (
            {"providers": {"gemini": {"modell": "x"}}},
            "memory.embedding.providers.gemini.modell",
            "memory.embedding.providers.gemini.model",
        ),
    ],
)
async def test_a_wrong_name_is_refused_with_its_origin_and_the_nearest(
    house: House, embedding: dict[str, object], key: str, nearest: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        await house.choose(**embedding)  # type: ignore[arg-type]

    assert (caught.value.key, caught.value.origin, caught.value.nearest) == (key, "the caller", nearest)


async def test_a_wrong_model_is_refused_where_it_was_set(house: House) -> None:
    with pytest.raises(ConfigError, match=r"openai\.model \(from the caller\)"):
        await house.choose("openai", model="a name that is too long to be true")


async def test_keys_are_never_told(house: House, events: MemorySink) -> None:
    house.specs["openai"] = provider("openai", breaks=True)
    choice = await house.choose("openai", ready="openai", fallback="voyage", providers={"voyage": {}})

    with pytest.raises(ConfigError) as caught:
        await house.choose("openai", providers={"openai": {"api_key": ["sesame"]}})
    assert "sesame" not in f"{choice} {caught.value} {list(events.events)}"


def test_a_provider_that_nobody_asks_for_is_left_alone(house: House) -> None:
    asked: list[str] = []

    def noting(spec: EmbedderSpec) -> EmbedderSpec:
        def lacks(settings: ProviderSettings, services: EmbedderServices) -> str | None:
            asked.append(spec.id)
            return spec.lacks(settings, services)

        return replace(spec, lacks=lacks)

    house.specs = {id_: noting(spec) for id_, spec in house.specs.items()}

    plan = plan_embedder(house.load({}), house.registry, house.services)
    assert asked == ["local", "wordllama"]

    assert {offer.id for offer in plan.offers} == set(EVERYBODY)
    assert sorted(asked) == sorted(EVERYBODY)


def test_a_plug_in_that_is_broken_does_not_stop_the_others(house: House) -> None:
    broken: Found[EmbedderSpec] = Found(id="broken", origin="test", problem="ImportError: no")
    registry = Registry(embedders=Offers((broken, *house.registry.embedders)), orders=ORDERS)

    plan = plan_embedder(house.load({}), registry, house.services)

    assert plan.offers.of("broken").unusable == "ImportError: no"
    assert plan.first.chosen is not None
    assert plan.first.chosen.id == "wordllama"
