"""Servers on loopback that take jobs as OpenAI, Voyage and Gemini do, and embed as they do besides."""

import json
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from email import message_from_bytes
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

from composable_memory.interfaces import EmbedderSpec
from composable_memory_adapters.embedders import gemini, openai
from tests.integration.embedders import loopback
from tests.integration.embedders.loopback import Received, Reply

__all__ = ["SERVERS", "GeminiServer", "Job", "JobServer", "OpenAiServer", "VoyageServer"]

Lines = list[bytes]


@dataclass(kw_only=True)
class Job:
    """A job as the server has it."""

    name: str
    lines: Sequence[Mapping[str, Any]]
    order: Mapping[str, Any]
    looks: int = 0


@dataclass
class JobServer(ABC):
    """Answers to one account. A job ends with the state `end` after `looks` looks at it.

    `first` are answers that come before all others; `spoil` makes of the results what is given out.
    """

    looks: int = 2
    end: str = "completed"
    first: list[Reply] = field(default_factory=list)
    spoil: Callable[[Lines], Lines] = field(default=lambda lines: lines)
    uploads: list[Mapping[str, Any]] = field(default_factory=list)
    jobs: dict[str, Job] = field(default_factory=dict)
    asked: Counter[str] = field(default_factory=Counter)
    most_at_once: int = 0

    spec: ClassVar[EmbedderSpec]
    base: ClassVar[str] = ""

    def __call__(self, received: Received) -> Reply:
        deed = self.deed(received)
        self.asked[deed] += 1
        if self.first and deed != "embed":
            return self.first.pop(0)
        reply: Reply = getattr(self, deed)(received)
        return reply

    @property
    def files(self) -> int:
        """Return how many files were left here."""
        return len(self.uploads)

    def is_over(self, job: Job) -> bool:
        return job.looks >= self.looks

    def begun(self, lines: Sequence[Mapping[str, Any]], order: Mapping[str, Any], name: str) -> Job:
        job = Job(name=name, lines=lines, order=order)
        self.jobs[name] = job
        going = sum(not self.is_over(one) for one in self.jobs.values())
        self.most_at_once = max(self.most_at_once, going)
        return job

    def results(self, job: Job) -> bytes:
        """Return the results in another order than the texts came."""
        lines = [json.dumps(self.result(line, job)).encode() for line in job.lines][::-1]
        return b"\n".join(self.spoil(lines)) + b"\n"

    @abstractmethod
    def deed(self, received: Received) -> str:
        """Return the name of what is asked: upload, create, look, download or embed."""

    @abstractmethod
    def result(self, line: Mapping[str, Any], job: Job) -> object:
        """Return the line of the results for a line that came in."""


class OpenAiServer(JobServer):
    """Files and batches."""

    spec = openai.spec

    def deed(self, received: Received) -> str:
        match received.method, received.path.strip("/").split("/"):
            case "POST", ["files"]:
                return "upload"
            case "POST", ["batches"]:
                return "create"
            case "GET", ["batches", _]:
                return "look"
            case "GET", ["files", _, "content"]:
                return "download"
            case "POST", ["embeddings"]:
                return "embed"
        raise AssertionError(received.path)

    def upload(self, received: Received) -> Reply:
        purpose, file = parts_of(received)
        self.uploads.append({"purpose": purpose.get_payload(), "name": file.get_filename(), **jsonl(file)})
        return Reply.of({"id": f"file-{len(self.uploads)}", "object": "file"})

    def create(self, received: Received) -> Reply:
        order = received.json
        file = self.uploads[int(order["input_file_id"].removeprefix("file-")) - 1]
        job = self.begun(file["lines"], order, f"batch_{len(self.jobs) + 1}")
        return Reply.of({"id": job.name, "status": "validating"})

    def look(self, received: Received) -> Reply:
        job = self.jobs.get(received.path.rpartition("/")[2])
        if job is None:
            return Reply.of({"error": {"message": "No batch found"}}, 404)
        job.looks += 1
        batch: dict[str, object] = {"id": job.name, "status": self.end, "errors": None}
        if not self.is_over(job):
            return Reply.of(batch | {"status": "in_progress"})
        if self.end in {"completed", "expired"}:
            return Reply.of(batch | {"output_file_id": f"out-{job.name}", "error_file_id": None})
        complaint = {"object": "list", "data": [{"code": "too_much", "message": "enqueued too much"}]}
        return Reply.of(batch | {"errors": complaint})

    def download(self, received: Received) -> Reply:
        name = received.path.split("/")[-2].removeprefix("out-")
        return Reply(body=self.results(self.jobs[name]))

    def embed(self, received: Received) -> Reply:
        return loopback.openai(received)

    def result(self, line: Mapping[str, Any], job: Job) -> object:
        assert (line["method"], line["url"]) == ("POST", "/v1/embeddings")
        vector = loopback.vector_of(line["body"]["input"], line["body"]["dimensions"])
        return answered(line["custom_id"], vector)


class VoyageServer(OpenAiServer):
    """As OpenAI, but what holds for all texts stands in the order."""

    spec = openai.voyage_spec

    def result(self, line: Mapping[str, Any], job: Job) -> object:
        vector = loopback.vector_of(line["body"]["input"], job.order["request_params"]["output_dimension"])
        return answered(line["custom_id"], vector)


class GeminiServer(JobServer):
    """Files beside the base URL, and operations."""

    spec = gemini.spec
    base = "/v1beta"

    def deed(self, received: Received) -> str:
        url = urlsplit(received.path)
        if url.path == "/upload/v1beta/files":
            assert parse_qs(url.query) == {"uploadType": ["multipart"]}
            return "upload"
        if url.path.startswith("/download/v1beta/files/"):
            assert parse_qs(url.query) == {"alt": ["media"]}
            return "download"
        if url.path.startswith("/v1beta/batches/"):
            return "look"
        assert url.path.startswith("/v1beta/models/gemini-embedding-001:")
        return {"asyncBatchEmbedContent": "create", "batchEmbedContents": "embed"}[url.path.split(":")[1]]

    def upload(self, received: Received) -> Reply:
        about, file = parts_of(received)
        self.uploads.append({"about": json.loads(about.get_payload()), **jsonl(file)})
        return Reply.of({"file": {"name": f"files/in-{len(self.uploads)}", "state": "ACTIVE"}})

    def create(self, received: Received) -> Reply:
        order = received.json["batch"]
        file = self.uploads[int(order["inputConfig"]["file_name"].removeprefix("files/in-")) - 1]
        job = self.begun(file["lines"], order, f"batches/job{len(self.jobs) + 1}")
        return Reply.of({"name": job.name, "metadata": {"state": "BATCH_STATE_PENDING"}})

    def look(self, received: Received) -> Reply:
        job = self.jobs.get(received.path.removeprefix("/v1beta/"))
        if job is None:
            return Reply.of({"error": {"message": "not found", "status": "NOT_FOUND"}}, 404)
        job.looks += 1
        if not self.is_over(job):
            return Reply.of({"name": job.name, "metadata": {"state": "BATCH_STATE_RUNNING"}})
        state = "BATCH_STATE_" + self.end.upper().replace("COMPLETED", "SUCCEEDED")
        operation = {"name": job.name, "done": True, "metadata": {"state": state}}
        if self.end in {"completed", "expired"}:
            return Reply.of(operation | {"response": {"responsesFile": f"files/{job.name[8:]}"}})
        return Reply.of(operation | {"error": {"code": 8, "message": "enqueued too much"}})

    def download(self, received: Received) -> Reply:
        name = urlsplit(received.path).path.rpartition("/")[2].removesuffix(":download")
        return Reply(body=self.results(self.jobs[f"batches/{name}"]))

    def embed(self, received: Received) -> Reply:
        return loopback.gemini(received)

    def result(self, line: Mapping[str, Any], job: Job) -> object:
        request = line["request"]
        vector = loopback.vector_of(request["content"]["parts"][0]["text"], request["outputDimensionality"])
        return {"key": line["key"], "response": {"embedding": {"values": vector}}}


SERVERS: Sequence[type[JobServer]] = (OpenAiServer, VoyageServer, GeminiServer)


def answered(text_id: str, vector: Sequence[float]) -> Mapping[str, Any]:
    body = {"object": "list", "data": [{"object": "embedding", "index": 0, "embedding": vector}]}
    return {"id": "r", "custom_id": text_id, "response": {"status_code": 200, "body": body}, "error": None}


def parts_of(received: Received) -> list[Any]:
    head = f"content-type: {received.headers['content-type']}\r\n\r\n".encode()
    message = message_from_bytes(head + received.body)
    assert message.is_multipart()
    return list(message.get_payload())


def jsonl(part: Any) -> Mapping[str, Any]:
    assert part.get_content_type() == "application/jsonl"
    lines = part.get_payload(decode=True).decode().strip().split("\n")
    return {"lines": [json.loads(line) for line in lines]}
