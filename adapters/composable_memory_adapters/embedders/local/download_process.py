"""Downloads one model file: the program that `download` runs, since a thread could not be stopped.

Reads a request as JSON from standard input: `repository`, `file` or null, `folder`, `endpoint` or null. If it
fails, a line on standard error says why. `hf_hub_download` could do all of this in one call, but deletes
partial downloads, and does not verify the file's hash.
"""

import json
import sys
from glob import escape
from hashlib import file_digest
from pathlib import Path
from types import TracebackType

from composable_memory_ops_logs.private_files import make_private_folder

SHA256_DIGITS = 64


def main() -> None:
    """Carry out the request."""
    sys.excepthook = _print_cause
    from filelock import FileLock
    from huggingface_hub import HfApi, hf_hub_url

    request = json.load(sys.stdin)
    endpoint, repository = request["endpoint"], request["repository"]
    file = request["file"] or _chosen(HfApi(endpoint=endpoint, token=False).list_repo_files(repository))
    target = Path(request["folder"]) / file
    make_private_folder(target.parent)
    with FileLock(f"{target}.lock"):  # another process may be downloading the same file
        if not target.exists():
            _download(hf_hub_url(repository, file, endpoint=endpoint), target)


def _download(url: str, target: Path) -> None:
    """Download to a file beside `target`, resuming a partial one, and rename it when complete."""
    from huggingface_hub.file_download import get_hf_file_metadata, http_get

    # Without a token: a hub named in the settings must not learn the user's, and public models need none.
    about = get_hf_file_metadata(url, token=False)
    etag = about.etag or "unknown"
    part = target.with_name(f"{target.name}.{etag[:SHA256_DIGITS]}.part")
    for old in set(target.parent.glob(f"{escape(target.name)}.*.part")) - {part}:
        old.unlink()
    with part.open("ab") as file:
        as_it_is = {"accept-encoding": "identity"}
        http_get(url, file, resume_size=file.tell(), headers=as_it_is, expected_size=about.size)
    if len(etag) == SHA256_DIGITS and _sha256(part) != etag:
        part.unlink()
        raise ValueError("the download does not match the hub's checksum; it was deleted")
    part.replace(target)


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return file_digest(file, "sha256").hexdigest()


def _chosen(files: list[str]) -> str:
    """Return the only model in a repository, or the only one with eight bits if there are several."""
    models = [name for name in files if name.endswith(".gguf") and "/" not in name]
    eight_bits = [name for name in models if "q8_0" in name.lower()]
    for found in (models, eight_bits):
        if len(found) == 1:
            return found[0]
    raise ValueError(f"it has to be one file of the repository: {', '.join(models) or 'none is a model'}")


def _print_cause(_kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
    """Write the root cause: the hub's client wraps server errors in advice."""
    while error.__cause__ is not None:
        error = error.__cause__
    sys.stderr.write(f"{type(error).__name__}: {' '.join(str(error).split())}\n")


if __name__ == "__main__":
    main()
