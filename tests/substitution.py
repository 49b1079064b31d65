"""Functions and constants of the package that tests replace, each under a short name.

If one of them is moved or renamed, only this table changes.
"""

import pytest

TARGETS = {
    "activation_checkpointing.trim_heap": "transformer.training.activation_checkpointing.trim_heap",
    "app.make_app": "transformer.cli.app.make_app",
    "atomic.copy_file_range": "transformer.storage.atomic.os.copy_file_range",
    "atomic.ismount": "transformer.storage.atomic.os.path.ismount",
    "attention.library": "transformer.kernels.attention.library",
    "backend.CpuKernelMode": "transformer.training.backend.CpuKernelMode",
    "backend.instruction_set": "transformer.training.backend.instruction_set",
    "token_batching.CHUNK": "transformer.data.token_batching.CHUNK",
    "classify.CHUNK": "transformer.cli.classify.CHUNK",
    "embed.CHUNK": "transformer.cli.embed.CHUNK",
    "evaluate_shards.CHUNK_LINES": "transformer.cli.evaluate_shards.CHUNK_LINES",
    "score_shards.CHUNK_LINES": "transformer.cli.score_shards.CHUNK_LINES",
    "text_generation.MAX_WINDOWS": "transformer.pipelines.text_generation.MAX_WINDOWS",
    "text_generation.search_all": "transformer.pipelines.text_generation.search_all",
    "step.is_update_queued": "transformer.training.step.is_update_queued",
    "step.supports_tensors": "transformer.training.step.supports_tensors",
    "cross_entropy.supports_tensors": "transformer.training.objectives.cross_entropy.supports_tensors",
    "checkpoint.rmtree": "transformer.training.checkpoint.shutil.rmtree",
    "checkpoint.write_verified_folder": "transformer.training.checkpoint.write_verified_folder",
    "dispatch.gelu": "transformer.training.cpu_ops.dispatch.gelu",
    "disk_space.disk_usage": "transformer.storage.disk_space.shutil.disk_usage",
    "encoding.BlockEncoder.encode": "transformer.data.encoding.BlockEncoder.encode",
    "gemm.library": "transformer.kernels.gemm.library",
    "inputs.CorpusFile.read": "transformer.data.inputs.CorpusFile.read",
    "linear.gelu": "transformer.training.cpu_ops.linear.gelu",
    "linear.matmul": "transformer.training.cpu_ops.linear.matmul",
    "normalization.library": "transformer.kernels.normalization.library",
    "plan.perf_counter": "transformer.training.planning.plan.perf_counter",
    "plan.try_batch": "transformer.training.planning.plan.try_batch",
    "prepare.CorpusBuilder.scan": "transformer.data.prepare.CorpusBuilder.scan",
    "packed_linear.library": "transformer.kernels.packed_linear.library",
    "progress.LINE_SECONDS": "transformer.data.progress.LINE_SECONDS",
    "topk.library": "transformer.kernels.topk.library",
    "running_text.MIN_LINES": "transformer.tokenizers.running_text.MIN_LINES",
    "search.GraphedSearcher": "transformer.pipelines.translation.search.GraphedSearcher",
    "search.search_each": "transformer.pipelines.translation.search.search_each",
    "segment.BLOCK_CHARACTERS": "transformer.pipelines.translation.segment.BLOCK_CHARACTERS",
    "sentences.segment": "transformer.text.sentences.segment",
    "text_generation.MAX_CACHE_ELEMENTS": "transformer.pipelines.text_generation.MAX_CACHE_ELEMENTS",
    "text_generation.MAX_LOGITS": "transformer.pipelines.text_generation.MAX_LOGITS",
    "text_generation.stream_tokens": "transformer.pipelines.text_generation.stream_tokens",
    "tokens.BLOCK_PAIRS": "transformer.data.tokens.BLOCK_PAIRS",
    "translation.BATCH_TOKENS": "transformer.run.tasks.translation.BATCH_TOKENS",
    "compute_worker.TRIM_INTERVAL": "transformer.runtime.compute_worker.TRIM_INTERVAL",
    "compute_worker.trim_heap": "transformer.runtime.compute_worker.trim_heap",
}


def substitute(monkeypatch: pytest.MonkeyPatch, name: str, value: object) -> None:
    """Replaces one of the `TARGETS` until the test ends."""
    monkeypatch.setattr(TARGETS[name], value)
