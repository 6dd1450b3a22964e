"""The model of the packaged word vectors, which all that is forked from an importing process has loaded."""

from composable_memory_adapters.embedders.wordllama import _StaticModel

MODEL = _StaticModel.shared()
