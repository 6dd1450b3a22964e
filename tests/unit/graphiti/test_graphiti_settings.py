"""Which place the settings of the graph memory name."""

import pytest

from composable_memory.config.validation import check
from composable_memory.errors import ConfigError
from composable_memory_adapters.graphiti.settings import GraphitiSettings


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, None),
        ({"url": "falkor://graphs:6379"}, None),
        ({"base_url": "http://graphs:8000/"}, "http://graphs:8000"),
        ({"server_host": "graphs"}, "http://graphs:8000"),
        ({"server_host": "graphs", "service_port": 8001}, "http://graphs:8001"),
        ({"service_port": 8001}, "http://localhost:8001"),
        ({"base_url": "http://graphs", "service_port": 8001}, "http://graphs"),
    ],
)
def test_a_service_is_named_by_an_address_or_by_host_or_port(
    given: dict[str, object], expected: str | None
) -> None:
    assert GraphitiSettings.model_validate(given).service_url == expected


@pytest.mark.parametrize("service", [{"base_url": "http://graphs"}, {"service_port": 8001}])
def test_a_service_and_a_database_are_not_both_taken(service: dict[str, object]) -> None:
    with pytest.raises(ConfigError, match=r"\(base_url\) and a database \(url\) are set"):
        check(GraphitiSettings, {"url": "falkor://graphs", **service})


def test_a_password_in_the_address_of_a_database_is_refused_and_not_shown() -> None:
    with pytest.raises(ConfigError, match="`username` and `password`") as refused:
        check(GraphitiSettings, {"url": "falkor://:sesame@graphs"})

    assert "sesame" not in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        {"url": "falkor://graphs/?password=sesame"},
        {"url": "neo4j://graphs/?access_token=sesame"},
        {"base_url": "http://anna:sesame@graphs"},
        {"base_url": "http://graphs/?api_key=sesame"},
        {"llm": {"base_url": "http://anna:sesame@models/v1"}},
    ],
)
def test_no_address_may_hold_a_secret_and_the_refusal_does_not_show_it(given: dict[str, object]) -> None:
    with pytest.raises(ConfigError) as refused:
        check(GraphitiSettings, given)

    told: list[str] = []
    error: BaseException | None = refused.value
    while error is not None:
        told.append(f"{error} {error!r}")
        error = error.__cause__ or error.__context__
    assert "sesame" not in "".join(told)


@pytest.mark.parametrize("host", ["anna@graphs", "graphs/x", "graphs?x"])
def test_a_host_is_a_host_and_nothing_more(host: str) -> None:
    with pytest.raises(ConfigError, match="name or IP address of a host"):
        check(GraphitiSettings, {"server_host": host})
