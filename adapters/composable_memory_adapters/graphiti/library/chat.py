"""graphiti-core's requests to a language model: asks for JSON, parses and validates it, and retries."""

import json
from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Any

from pydantic import BaseModel, ValidationError

from composable_memory.errors import (
    BackendError,
    BackendGarbled,
    BackendRejected,
    BackendTimeout,
    BackendUnavailable,
)
from composable_memory.json_documents import problems_in
from composable_memory_adapters.graphiti.fact_stores import BACKEND_ID
from composable_memory_adapters.graphiti.library.core import (
    LLMClient,
    LLMConfig,
    Message,
    ModelSize,
    get_extraction_language_instruction,
)
from composable_memory_adapters.graphiti.settings import LlmSettings
from composable_memory_feedback.chat import ChatClient, ChatEndpoint, ChatError
from composable_memory_feedback.chat_protocol import UNFIT, Manner
from composable_memory_feedback.errors import FeedbackError
from composable_memory_feedback.language_model import ChatReply, json_object_in

ASKING = "ask the language model"

MAX_ANSWERS = 3
"""Answers allowed per question: more seldom help, and small models take long for each."""

KNOWN = ("episode_indices",)
"""Fields left out of schemas: there is only one episode, and small models fill this list until cut off."""


class _Form(StrEnum):
    """A way to request JSON; what the endpoint does not enforce is put into the prompt."""

    SCHEMA = "json_schema"
    GRAMMAR = "json_object with a schema"  # all that llama-cpp-python's server understands
    OBJECT = "json_object"
    WORDS = "none"


class ChatModel(LLMClient):  # type: ignore[misc]  # graphiti-core is not typed here
    """A language model behind an endpoint, for graphiti-core; each question has a time limit."""

    def __init__(self, client: ChatClient, settings: LlmSettings) -> None:
        super().__init__(LLMConfig(model=settings.model, temperature=0, max_tokens=settings.max_tokens))
        self._client = client
        self._max_tokens = settings.max_tokens
        self._manner = Manner()
        self._timeout_s = settings.timeout_ms / 1000
        self._forms = _forms(settings)
        self._is_proven = False

    async def generate_response(
        self,
        messages: list[Message],
        response_model: type[BaseModel] | None = None,
        max_tokens: int | None = None,  # noqa: ARG002 - ours is the limit that the endpoint can keep
        model_size: ModelSize = ModelSize.medium,  # noqa: ARG002 - there is one model
        group_id: str | None = None,
        prompt_name: str | None = None,  # noqa: ARG002 - as demanded
        *,
        attribute_extraction: bool = False,
        model: str | None = None,  # noqa: ARG002 - there is one model
    ) -> dict[str, Any]:
        """Return an object that validates as `response_model`.

        Raises:
            BackendError: the endpoint failed or refused, or the model did not return what was requested.
        """
        self._apply_attribute_extraction_preamble(messages, attribute_extraction)
        messages[0].content += get_extraction_language_instruction(group_id)
        asked = [{"role": one.role, "content": self._clean_input(one.content)} for one in messages]
        return await self._answered(asked, response_model)

    async def _generate_response(self, messages: list[Message], *args: Any, **kwargs: Any) -> dict[str, Any]:
        return await self.generate_response(messages, *args, **kwargs)

    async def _answered(
        self, messages: Sequence[Mapping[str, str]], model: type[BaseModel] | None
    ) -> dict[str, Any]:
        """Ask until the answer can be parsed; each retry says what was wrong."""
        forms, retry_messages = list(self._forms), list[dict[str, str]]()
        text = problem = ""
        for _ in range(MAX_ANSWERS):
            form, reply = await self._asked(forms, [*messages, *retry_messages], model)
            text = reply.text
            answer, problem = _read(reply, model)
            if answer is not None:
                self._prove(form)
                return answer
            retry_messages = [
                {"role": "assistant", "content": text},
                {"role": "user", "content": _correction(problem)},
            ]
            if not self._is_proven:  # the endpoint may accept a form without enforcing it
                forms = forms[1:] or forms
        expected = model.__name__ if model else "an object"
        raise BackendGarbled(BACKEND_ID, ASKING, excerpt=text, expected=f"JSON for {expected} ({problem})")

    async def _asked(
        self, forms: list[_Form], messages: Sequence[Mapping[str, str]], model: type[BaseModel] | None
    ) -> tuple[_Form, ChatReply]:
        """Ask in the first form that the endpoint accepts; rejected ones are removed from `forms`."""
        while True:
            form = forms[0]
            asked, response_format = _request(form, messages, model)
            body = {"model": self._client.model, "messages": asked, **self._manner.limits(self._max_tokens)}
            if response_format is not None:
                body["response_format"] = response_format
            try:
                return form, await self._client.ask(body)
            except ChatError as error:
                other = self._manner.with_other_limits(error.said) if error.status in UNFIT else None
                if other is not None:
                    self._manner = other
                    continue
                forms.pop(0)
                if error.status in UNFIT and forms:
                    continue
                raise _failure(error, self._timeout_s) from None

    def _prove(self, form: _Form) -> None:
        """Start with this form from now on."""
        if form in self._forms:
            self._forms = self._forms[self._forms.index(form) :]
        self._is_proven = True


def endpoint_of(settings: LlmSettings) -> ChatEndpoint:
    """Return the configured endpoint.

    Raises:
        BackendUnavailable: none is configured, or its settings are invalid.
    """
    if settings.base_url is None:
        raise BackendUnavailable(BACKEND_ID, "no language model is named", fix="set llm.base_url")
    try:
        return ChatEndpoint(
            base_url=str(settings.base_url),
            model=settings.model,
            api_key=settings.api_key.get_secret_value() if settings.api_key else None,
            timeout_s=settings.timeout_ms / 1000,
        )
    except FeedbackError as error:
        problem = f"{error.problem}: {error.subject}"
        raise BackendUnavailable(BACKEND_ID, problem, fix=error.advice, operation=ASKING) from None


def _failure(error: ChatError, limit_s: float) -> BackendError:
    """Translate a failure of the endpoint for the user."""
    if error.kind == "slow":
        return BackendTimeout(BACKEND_ID, ASKING, limit_s=limit_s, elapsed_s=limit_s)
    if error.kind == "garbled":
        return BackendGarbled(BACKEND_ID, ASKING, excerpt=error.said, expected="a chat completion")
    if error.status in {400, 413, 422}:
        return BackendRejected(BACKEND_ID, ASKING, status=str(error.status), body=error.said)
    missing, fix = f"{error.problem}: {error.subject}", "try again later"
    if error.kind == "unreachable":
        fix = "start it, or check llm.base_url"
    elif error.status in {401, 403}:
        fix = "set llm.apiKey to a key that it knows"
    elif error.status in {404, 405}:
        fix = "check llm.base_url and llm.model"
    return BackendUnavailable(BACKEND_ID, missing, fix=fix, operation=ASKING)


def _forms(settings: LlmSettings) -> list[_Form]:
    if settings.structured_output == "auto":
        return list(_Form)
    return [_Form(settings.structured_output)]


def _request(
    form: _Form, messages: Sequence[Mapping[str, str]], model: type[BaseModel] | None
) -> tuple[list[Mapping[str, str]], Mapping[str, object] | None]:
    schema = _pruned(model.model_json_schema()) if model else {"type": "object"}
    if form is _Form.SCHEMA:
        name = model.__name__ if model else "Answer"
        return list(messages), {"type": "json_schema", "json_schema": {"name": name, "schema": schema}}
    if form is _Form.GRAMMAR:
        return list(messages), {"type": "json_object", "schema": schema}
    return _with_schema(messages, schema), None if form is _Form.WORDS else {"type": "json_object"}


def _pruned(schema: dict[str, Any]) -> dict[str, Any]:
    """Return a schema without the fields in `KNOWN`."""
    for part in (schema, *schema.get("$defs", {}).values()):
        for name in KNOWN:
            part.get("properties", {}).pop(name, None)
    return schema


def _with_schema(
    messages: Sequence[Mapping[str, str]], schema: Mapping[str, object]
) -> list[Mapping[str, str]]:
    """Return the messages with the schema in the first user message; small models like to repeat it."""
    place = next((n for n, one in enumerate(messages) if one["role"] == "user"), len(messages) - 1)
    instruction = (
        "\n\nAnswer with one JSON object and nothing else. This JSON Schema describes it; "
        f"do not repeat the schema:\n{json.dumps(schema, ensure_ascii=False)}"
    )
    changed = {**messages[place], "content": messages[place]["content"] + instruction}
    return [*messages[:place], changed, *messages[place + 1 :]]


def _read(reply: ChatReply, model: type[BaseModel] | None) -> tuple[dict[str, Any] | None, str]:
    """Return the object in an answer, or None and what is wrong with it."""
    found = json_object_in(reply.text)
    if found is None:
        return None, "there is no JSON object in it" if reply.is_whole else "it was cut off"
    if model is None:
        return found, ""
    try:
        model.model_validate(found)
    except ValidationError as error:
        if not reply.is_whole:
            return None, "it was cut off"
        return None, "; ".join(problems_in(error)[:5])
    return found, ""


def _correction(problem: str) -> str:
    return f"That cannot be used: {problem}. Answer again, with one JSON object of the form asked for."
