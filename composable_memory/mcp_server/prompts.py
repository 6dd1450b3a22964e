"""Prompts that a user picks: a recap, what is known of something, and a review of the week."""

from mcp.shared.exceptions import MCPError
from mcp.types import (
    INVALID_PARAMS,
    GetPromptRequestParams,
    GetPromptResult,
    ListPromptsResult,
    PaginatedRequestParams,
    Prompt,
    PromptArgument,
    PromptMessage,
    TextContent,
)

from composable_memory.errors import InvalidArgument
from composable_memory.mcp_server.resources import Asked, recap_of
from composable_memory_ops_logs.quick_dataclass import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class _Template:
    """A prompt; `about` says that it has to be told what it is about, `has_recap` that a recap follows it."""

    title: str
    description: str
    text: str
    about: str = ""
    has_recap: bool = False


TEMPLATES = {
    "recap": _Template(
        title="Recap",
        description="Where we stand: decisions, open ends, next steps",
        text="Tell me in a few sentences where we stand: what was decided, what is open, what comes next. "
        "Look at memory_recent for the last days, and search for what is unclear. Name your sources.",
        has_recap=True,
    ),
    "what_do_you_know": _Template(
        title="What do you know about …?",
        description="What is known of a person, a project or a thing, now and before",
        text="What do you know about {about}? Call memory_recall with it as the entity, then memory_context. "
        "Tell what holds now before what has ended, with the sources, and what is not known.",
        about="A person, a project, a thing",
    ),
    "weekly_review": _Template(
        title="Weekly review",
        description="What was done and decided in the last seven days, and what is open",
        text="Review my last seven days. Call memory_recent with days 7, and read on where it matters. List "
        "what was done, what was decided and why, what is still open, and what contradicts what was said "
        "before. Propose what is worth remembering, and remember it only when I agree.",
    ),
}


async def list_prompts(ctx: Asked, _: PaginatedRequestParams | None) -> ListPromptsResult:
    """List the prompts."""
    names = [*filter(None, ctx.lifespan_context.workspaces)]
    return ListPromptsResult(prompts=[_listed(name, one, names) for name, one in TEMPLATES.items()])


async def get_prompt(ctx: Asked, params: GetPromptRequestParams) -> GetPromptResult:
    """Return a prompt; what it quotes from notes is fenced as data.

    Raises:
        MCPError: there is no such prompt or workspace, or an argument is missing.
    """
    template, given = TEMPLATES.get(params.name), params.arguments or {}
    if template is None:
        raise MCPError(
            INVALID_PARAMS, f"there is no prompt {params.name!r}; there are {', '.join(TEMPLATES)}"
        )
    about = " ".join(given.get("about", "").split())
    if template.about and not about:
        raise MCPError(INVALID_PARAMS, f"prompt {params.name!r} needs the argument 'about'")
    service = ctx.lifespan_context
    is_named = "" not in service.workspaces
    try:
        opened = service.workspace(given.get("workspace") if is_named else "")
    except InvalidArgument as error:
        raise MCPError(INVALID_PARAMS, str(error)) from error
    text = template.text.format(about=about)
    if is_named:
        text += f" The workspace is {given['workspace']}."
    if template.has_recap and opened.memory is not None:
        text = "\n\n".join(filter(None, (text, await recap_of(opened.memory, service.session_key))))
    message = PromptMessage(role="user", content=TextContent(type="text", text=text))
    return GetPromptResult(description=template.description, messages=[message])


def _listed(name: str, template: _Template, workspaces: list[str]) -> Prompt:
    arguments = []
    if template.about:
        arguments.append(PromptArgument(name="about", description=template.about, required=True))
    if workspaces:
        description = " or ".join(workspaces)
        arguments.append(PromptArgument(name="workspace", description=description, required=True))
    return Prompt(name=name, title=template.title, description=template.description, arguments=arguments)
