"""Checks that tests notice deliberate faults: each is put into a copy of the project, and its nearest tests must fail.

    python tools/mutate.py
    python tools/mutate.py --only decoding
    python tools/mutate.py --list

Without options, it tries all faults, one after another. With `--only`, it tries those whose file, text or tests contain
a text.

Prints one line per fault, `killed` or `SURVIVED`. Exits with 1 if one survives, and with 2 if the table does not match
the source or a test fails without a fault.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[1]
PACKAGE: Final = Path("src", "transformer")
COPIED: Final = ("src", "tests", "tools", "recipes", "pyproject.toml")
"""Files and folders that the tests read."""
FAST: Final = "not slow and not soak and not interop"
SECONDS_PER_FAULT: Final = 300
"""Time after which the tests of a fault are stopped; a fault that hangs them counts as noticed."""
PLUGINS: Final = ("pytest_timeout", "xdist.plugin")
"""Plugins of pytest that the tests need; loading all that are installed would take half the time."""
FAILED: Final = 1
"""Exit status of pytest if a test fails."""


class MutationError(Exception):
    """A fault that cannot be tried, or a test that fails without a fault."""


@dataclass(frozen=True)
class Fault:
    """A deliberate fault.

    Attributes:
        file: File below `src/transformer`.
        old: Text that must occur in it exactly once.
        new: Text that replaces it.
        tests: The nearest fast tests, below `tests`, separated by spaces.
    """

    file: str
    old: str
    new: str
    tests: str

    @property
    def arguments(self) -> list[str]:
        """Arguments of pytest that select the tests."""
        return [f"tests/{test}" for test in self.tests.split()]

    def __str__(self) -> str:
        """Returns the file, and the first line in which both texts differ."""
        lines = zip(self.old.splitlines(), [*self.new.splitlines(), *[""] * self.old.count("\n")], strict=False)
        old, new = next((pair for pair in lines if pair[0] != pair[1]), (self.old, self.new))
        return f"{self.file}: {old.strip()} -> {new.strip()}"


BLOCKS: Final = (
    Fault(
        "blocks/attention.py", "scores / math.sqrt(query.size(-1)) if", "scores / query.size(-1) if",
        "unit/blocks/test_attention.py::test_attention_is_equation_1",
    ),
    Fault(
        "blocks/attention.py", "masked = ~mask.bool()", "masked = mask.bool()",
        "unit/blocks/test_attention.py::test_attention_is_equation_1",
    ),
    Fault(
        "blocks/attention.py", ".softmax(dim=-1).masked_fill(masked, 0.0)", ".softmax(dim=-1)",
        "unit/blocks/test_attention.py::test_fully_masked_rows_are_zero_with_finite_gradients",
    ),
    Fault(
        "blocks/attention.py", "scores.to(torch.promote_types(scores.dtype, torch.float32))", "scores.clone()",
        "unit/blocks/test_attention.py::test_weights_of_bfloat16_inputs_are_computed_in_float32",
    ),
    Fault(
        "blocks/attention.py", "x.repeat_interleave(self.h // self.kv_heads, dim=1)",
        "x.repeat(1, self.h // self.kv_heads, 1, 1)",
        "unit/blocks/test_later_blocks.py::test_shared_key_heads_are_those_of_repeated_matrices",
    ),
    Fault(
        "blocks/residual.py", "self.norm(self.dropout.add_dropout(x, sublayer(x)))",
        "self.dropout(self.norm(x + sublayer(x)))",
        "unit/blocks/test_blocks.py::test_dropout_of_a_residual_connection_spares_the_input",
    ),
    Fault(
        "blocks/residual.py", 'if self.order == "pre":', 'if self.order == "post":',
        "unit/blocks/test_blocks.py::test_residual_orders",
    ),
    Fault(
        "blocks/positional.py", "[angle.sin(), angle.cos()]", "[angle.cos(), angle.sin()]",
        "unit/blocks/test_blocks.py::test_sinusoid_is_the_formula",
    ),
    Fault(
        "blocks/embedding.py", "self.scale = math.sqrt(d_model) if", "self.scale = 1.0 if",
        "unit/blocks/test_blocks.py::test_embedding_is_a_scaled_lookup",
    ),
    Fault(
        "blocks/normalization.py", "return F.layer_norm(x, self.alpha.shape, self.alpha, self.beta, self.eps)",
        "return self.alpha * (x - x.mean(-1, keepdim=True)) / (x.var(-1, keepdim=True) + self.eps).sqrt() + self.beta",
        "unit/blocks/test_blocks.py::test_layer_norm_is_the_reference_formula",
    ),
    Fault(
        "blocks/normalization.py", ".mean(-1, keepdim=True) + self.eps)", ".mean(-1, keepdim=True) + 1e-12)",
        "unit/blocks/test_later_blocks.py::test_rms_norm_is_that_of_torch",
    ),
    Fault(
        "blocks/cache.py", "self.keys[rows, :, positions] = new", "self.keys[rows, :, positions.clamp(max=2)] = new",
        "unit/blocks/test_later_blocks.py::test_a_causal_stack_steps_as_it_reads",
    ),
    Fault(
        "blocks/rotary.py", "first * cosines - second * sines", "first * cosines + second * sines",
        "unit/blocks/test_later_blocks.py::test_rotary_positions_are_the_rotations_of_the_paper",
    ),
)  # fmt: skip
MODELS: Final = (
    Fault(
        "models/bert/weights.py", '"eps": ("layer_norm_eps", 1e-12)', '"eps": ("layer_norm_eps", 1e-5)',
        "unit/models/test_published_settings.py::test_defaults_are_those_of_transformers",
    ),
    Fault(
        "models/llama/weights.py", '("rms_norm_eps", 1e-6)', '("rms_norm_eps", 1e-5)',
        "unit/models/test_published_settings.py::test_defaults_are_those_of_transformers",
    ),
    Fault(
        "models/marian/weights.py", '("scale_embedding", False)', '("scale_embedding", True)',
        "unit/models/test_published_settings.py::test_defaults_are_those_of_transformers",
    ),
    Fault(
        "models/t5/weights.py", '("relative_attention_max_distance", 128)', '("relative_attention_max_distance", 64)',
        "unit/models/test_published_settings.py::test_defaults_are_those_of_transformers",
    ),
    Fault(
        "models/gpt/weights.py", 'transposed=kind == "weight"', "transposed=False",
        "parity/test_gpt.py::test_logits_and_hidden_states_are_those_of_transformers",
    ),
    Fault(
        "models/llama/weights.py", '("gate_proj", "gate"), ("up_proj", "linear_1")',
        '("gate_proj", "linear_1"), ("up_proj", "gate")',
        "parity/test_gpt.py::test_logits_and_hidden_states_are_those_of_transformers",
    ),
    Fault(
        "models/vit/model.py", 'mode="bilinear")', 'mode="bilinear", align_corners=True)',
        "unit/run/test_tasks.py::test_larger_images_start_from_interpolated_positions",
    ),
)  # fmt: skip
TRAINING: Final = (
    Fault(
        "training/loop.py", "schedule, state.step + 1", "schedule, state.step + 2",
        "unit/training/test_training.py::test_update_n_has_the_learning_rate_of_step_n",
    ),
    Fault(
        "training/optim/schedule.py", "min(step / warmup_steps, math.sqrt", "min((step - 1) / warmup_steps, math.sqrt",
        "unit/training/test_training.py::test_schedules_rise_to_the_peak",
    ),
    Fault(
        "training/step.py", "gradient_norm > clip_norm:", "gradient_norm > 2 * clip_norm:",
        "unit/training/test_training.py::test_a_gradient_barely_above_the_limit_is_scaled",
    ),
    Fault(
        "training/optim/adam.py", '{"params": others, "weight_decay": 0.0}',
        '{"params": others, "weight_decay": config.weight_decay}',
        "unit/training/test_training.py::test_weight_decay_is_that_of_matrices_alone",
    ),
    Fault(
        "training/objectives/cross_entropy.py", "p.sub_(epsilon / vocab_size)", "p.sub_(epsilon / (vocab_size - 1))",
        "unit/training/test_training.py::test_chunked_loss_is_cross_entropy",
    ),
    Fault(
        "training/step.py", "(result.loss_sum * weight / count).backward()",
        "(result.loss_sum * weight / batch.scored_tokens / len(micro_batches)).backward()",
        "unit/training/test_training.py::test_accumulation_gives_the_same_update",
    ),
    Fault(
        "training/objectives/translation.py", "labels != self.pad_ids[1], size", "labels >= 0, size",
        "unit/training/test_training.py::test_objective_scores_what_is_not_padding",
    ),
    Fault(
        "training/step.py", "state.context.rank + index * state.context.size)", "state.context.rank)",
        "unit/training/test_training.py::test_dropout_depends_on_seed_step_and_micro_batch_alone",
    ),
    Fault(
        "training/step.py", "if math.isfinite(loss) and math.isfinite(gradient_norm):",
        "if math.isfinite(loss):",
        "unit/training/test_skipped_batches.py::test_a_norm_that_overflows_is_named",
    ),
    Fault(
        "training/loop.py", "enumerate(plan[first:], start=first + 1)", "enumerate(plan[first:], start=first)",
        "unit/training/test_training.py::test_a_continued_run_sees_the_batches_it_would_have_seen",
    ),
    Fault(
        "training/optim/state_dict.py", "state[key].copy_(tensor)", "state[key].zero_()",
        "unit/run/test_checkpoint.py::test_what_adam_remembers_comes_back_under_the_parameters_names",
    ),
    Fault(
        "training/checkpoint.py", "folder.rename(removed)\n            shutil.rmtree(removed, ignore_errors=True)",
        "shutil.rmtree(folder, ignore_errors=True)",
        "unit/run/test_checkpoint.py::test_a_checkpoint_loses_its_name_before_its_files",
    ),
    Fault(
        "training/checkpoint.py", "for step in reversed(checkpoint_steps(self.run)):",
        "for step in checkpoint_steps(self.run):",
        "unit/run/test_checkpoint.py::test_the_last_and_the_best_of_each_are_kept",
    ),
    Fault(
        "training/optim/ema.py", "(total / self.count)", "(total / (self.count + 1))",
        "unit/run/test_averaging.py::test_the_mean_is_exact",
    ),
)  # fmt: skip
DATA: Final = (
    Fault(
        "data/token_batching.py", "batch_tokens // max(1, length))", "batch_tokens // max(1, length) + 1)",
        "unit/data/test_preparation.py::test_batches_are_cut_as_late_as_the_budget_allows",
    ),
    Fault(
        "data/token_batching.py", "generator.permutation(len(batches))", "range(len(batches))",
        "unit/data/test_preparation.py::test_batches_come_in_random_order",
    ),
    Fault(
        "data/duplicates.py", 'entries["row"][1:][same]', 'entries["row"][:-1][same]',
        "unit/data/test_preparation.py::test_all_but_the_first_of_equal_pairs_are_found",
    ),
    Fault(
        "data/duplicates.py", r'f"{source}\n{target}"', 'f"{source}{target}"',
        "unit/data/test_preparation.py::test_duplicates_are_pairs_not_sides",
    ),
    Fault(
        "text/lines.py", r'line = line.removesuffix(b"\r")', "line = line.rstrip()",
        "unit/text/test_text.py::test_only_one_carriage_return_is_part_of_a_line_end",
    ),
    Fault(
        "data/fingerprint.py", "for path in paths).encode()", "for path in sorted(paths)).encode()",
        "unit/data/test_fingerprint.py::test_a_list_of_files_is_summed_in_its_order",
    ),
)  # fmt: skip
DECODING: Final = (
    Fault(
        "options/length_penalties.py", "((5 + length) / 6) ** self.alpha", "((6 + length) / 7) ** self.alpha",
        "unit/decoding/test_config.py",
    ),
    Fault(
        "decoding/candidates.py", "values, best = _sorted_descending(ranking_scores, size)",
        "values, best = _sorted_descending(candidates.ranking_scores, size)",
        "unit/decoding/test_search.py::test_a_full_beam_is_brute_force",
    ),
    Fault(
        "decoding/search.py", "beams.collect_finished(candidates, slice(0, search.beam), 0)",
        "beams.collect_finished(candidates, slice(0, 2 * search.beam), 0)",
        "unit/decoding/test_search.py::test_a_narrow_beam_is_the_search_over_lists",
    ),
    Fault(
        "decoding/search.py", "(sentence.length < search.min_tokens) is is_early", "True",
        "unit/decoding/test_search.py::test_sentences_that_enter_late_have_the_minimum_of_tokens_too",
    ),
    Fault(
        "decoding/logits_processors.py", "(history.n_generated < min_tokens)[:, None]",
        "(history.n_generated.max() < min_tokens)[None, None]",
        "unit/decoding/test_search.py::test_the_minimum_of_tokens_is_counted_for_each_row",
    ),
    Fault(
        "decoding/logits_processors.py", "(starts + size - 1 < lengths[:, None])", "(starts + size < lengths[:, None])",
        "unit/decoding/test_search.py::test_a_narrow_beam_under_rules_is_the_search_over_lists",
    ),
    Fault(
        "decoding/sampling.py", "before >= sampling.top_p)", "before + ordered.values >= sampling.top_p)",
        "unit/decoding/test_sampling.py::test_which_tokens_may_be_drawn",
    ),
    Fault(
        "decoding/constrained.py", "if ends and any(constraint.missing", "if ends and all(constraint.missing",
        "unit/decoding/test_search.py::test_a_full_beam_with_required_phrases_is_brute_force",
    ),
    Fault(
        "decoding/incremental_state.py", "positions=torch.cat([state.positions, other.positions]),",
        "positions=torch.cat([state.positions, other.positions + state.longest]),",
        "unit/decoding/test_search.py::test_sentences_enter_while_others_are_searched",
    ),
)  # fmt: skip
PIPELINES: Final = (
    Fault(
        "pipelines/translation/search.py", "((order[rank], hypotheses) for", "((rank, hypotheses) for",
        "unit/pipelines/translation/test_translator.py::test_n_lines_in_n_lines_out_in_order",
    ),
    Fault(
        "pipelines/translation/assemble.py", "restored = restore_tags(tag_free, alternative.text, origins, ",
        "restored = restore_tags(tag_free, alternative.text, sorted(origins, key=str), ",
        "unit/pipelines/translation/test_inline_tags.py::test_tags_go_where_the_aligner_finds_their_words",
    ),
    Fault(
        "pipelines/translation/inline_tags.py", "element.start <= origin < element.end:",
        "element.start <= origin <= element.end:",
        "unit/pipelines/translation/test_inline_tags.py::test_tags_go_where_their_words_went",
    ),
    Fault(
        "text/number_comparison.py", "if source and target:\n            return False",
        "if source and target:\n            return True", "unit/text/test_numbers.py::test_other_values",
    ),
    Fault(
        "text/number_values.py", "last not in (decimal, \"٫\"))", "last not in (\"٫\",))",
        "unit/text/test_numbers.py::test_the_language_decides",
    ),
    Fault(
        "text/case.py", "rank * (1 if form == lower else ADVANTAGE)", "rank",
        "unit/text/test_case.py::test_capitals_get_their_ordinary_case",
    ),
    Fault(
        "text/case.py", "if (len(inside) > 1 or len(inside[0]) > MAX_ACRONYM) and not", "if not",
        "unit/text/test_case.py::test_ordinary_lines_stay_as_they_are",
    ),
    Fault(
        "pipelines/translation/confidence.py", "confidences[is_plain & (chrf >= GOOD)]", "confidences[chrf >= GOOD]",
        "unit/pipelines/translation/test_confidence.py::test_the_threshold_spares_good_plain_lines",
    ),
    Fault(
        "pipelines/translation/confidence.py", "math.exp(score / n_target)", "math.exp(score)",
        "unit/pipelines/translation/test_confidence.py::test_features_and_flags_of_lines",
    ),
    Fault(
        "pipelines/translation/terminology.py", "key=len, reverse=True)", "key=len)",
        "unit/pipelines/translation/test_terminology.py::test_terms_are_whole_words_and_the_longest_counts",
    ),
    Fault(
        "text/sentences.py", r"(?<![\w.,])\d{1,3}\. ", r"(?<![\w.,])\d{1,2}\. ",
        "unit/text/test_sentences.py::test_ordinals_of_up_to_three_digits",
    ),
)  # fmt: skip
EVALUATION: Final = (
    Fault(
        "evaluation/scores.py", 'word_order=CHRF_WORDS if name == "chrF++" else 0', "word_order=CHRF_WORDS",
        "unit/evaluation/test_evaluation.py::test_bleu_by_hand",
    ),
    Fault(
        "evaluation/brackets.py", "if span[1] < span[2]", "if span[1] <= span[2]",
        "unit/evaluation/test_brackets.py::test_brackets_by_hand",
    ),
    Fault(
        "evaluation/brackets.py", "(parse[0] & wanted).total()", "len(parse[0].keys() & wanted.keys())",
        "unit/evaluation/test_brackets.py::test_f1_is_of_the_whole_test_set_and_agrees_with_nltk",
    ),
    Fault(
        "text/trees.py", "opened[-1][0] == label", "opened[-1]",
        "unit/text/test_trees.py::test_symbols_that_are_no_tree_have_no_constituents",
    ),
    Fault(
        "evaluation/scores.py", "return BLEU(tokenize=tokenize, force=True)", "return BLEU(force=True)",
        "unit/evaluation/test_tokenization.py::test_scores_equal_those_of_sacrebleu",
    ),
    Fault(
        "evaluation/scores.py", 'test_type="bs", n_samples=samples', 'test_type="bs", n_samples=2',
        "unit/evaluation/test_evaluation.py::test_intervals_and_tests",
    ),
)  # fmt: skip
STORAGE: Final = (
    Fault(
        "storage/verified_folder.py", "if (size, sha256) != (entry.size, entry.sha256):", "if size != entry.size:",
        "unit/run/test_checkpoint.py::test_one_flipped_bit_anywhere_is_refused",
    ),
    Fault(
        "storage/atomic.py", "os.fsync(raw.fileno())", "raw.fileno()",
        "unit/storage/test_atomic.py::test_a_file_is_not_in_place_before_it_is_on_disk",
    ),
    Fault(
        "storage/atomic.py", "temporary.replace(final)\n            sync(final.parent)", "temporary.replace(final)",
        "unit/storage/test_atomic.py::test_the_name_of_a_file_is_on_disk_too",
    ),
    Fault(
        "storage/atomic.py", "sync(final if is_mounted else final.parent)", "sync(final)",
        "unit/storage/test_atomic.py::test_the_name_of_a_folder_is_on_disk_too",
    ),
)  # fmt: skip
SERVING: Final = (
    Fault(
        "serving/bodies.py", "if len(content) > max_bytes:", "if len(content) >= max_bytes:",
        "unit/serving/test_access.py::test_a_body_of_exactly_the_limit_is_read",
    ),
    Fault(
        "serving/keys.py", "hmac.compare_digest(digest, expected)", "hmac.compare_digest(digest[:8], expected[:8])",
        "unit/serving/test_access.py::test_keys_are_compared_by_the_whole_hash",
    ),
    Fault(
        "serving/engine/queue.py", "self._clients.move_to_end(name)", "self._clients.move_to_end(name, last=False)",
        "unit/serving/test_engine_queue.py",
    ),
    Fault(
        "serving/access.py", "n_running >= self._max_concurrent:", "n_running > self._max_concurrent:",
        "unit/serving/test_access.py::test_running_requests_are_counted",
    ),
    Fault(
        "serving/access.py", "is_allowed = tokens >= 1", "is_allowed = tokens > 0",
        "unit/serving/test_access.py::test_the_rate_allows_bursts_and_recovers",
    ),
)  # fmt: skip
KERNELS: Final = (
    Fault(
        "kernels/topk.py", "best.values - logits.logsumexp(dim=1, keepdim=True)",
        "best.values - allowed.logsumexp(dim=1, keepdim=True)",
        "unit/kernels/test_kernels.py::test_best_tokens",
    ),
    Fault(
        "kernels/normalization.py", "None if other is None else other.data_ptr()", "None",
        "unit/kernels/test_kernels.py::test_add_norm",
    ),
    Fault(
        "kernels/attention.py", "args.query_batch, args.query_stride = query.stride()[:2]",
        "args.query_batch, args.query_stride = query.size(1) * query.size(2), query.size(2)",
        "unit/kernels/test_kernels.py::test_attention",
    ),
)  # fmt: skip
FAULTS: Final = (
    *BLOCKS, *MODELS, *TRAINING, *DATA, *DECODING, *PIPELINES, *EVALUATION, *STORAGE, *SERVING, *KERNELS,
)  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> int:
    """Tries the faults that the command line selects; returns the exit status."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--only", metavar="TEXT", default="", help="only faults whose file, text or tests contain TEXT")
    parser.add_argument("--list", action="store_true", help="list the faults without trying them")
    options = parser.parse_args(arguments)
    chosen = [fault for fault in FAULTS if options.only in f"{fault.file} {fault.old} {fault.new} {fault.tests}"]
    if options.list:
        for fault in chosen:
            print(fault)
        return 0
    try:
        return 1 if try_faults(chosen) else 0
    except MutationError as error:
        print(f"error: {error}", file=sys.stderr)
        return 2


def try_faults(faults: Sequence[Fault]) -> list[Fault]:
    """Tries faults one after another in a copy of the project, and prints a line for each.

    Returns:
        The faults that no test noticed.

    Raises:
        MutationError: No fault is selected, one does not match the source, or a test fails without a fault.
    """
    if not faults:
        raise MutationError("no fault is selected; see --list")
    sources = {fault: mutated(fault, ROOT) for fault in faults}
    survivors: list[Fault] = []
    with tempfile.TemporaryDirectory(prefix="mutate-") as folder:
        copy = Path(folder)
        copy_project(copy)
        tests = sorted({test for fault in faults for test in fault.arguments})
        check_import(copy)
        print(f"the {len(tests)} selections of tests without a fault ...", flush=True)
        status, output = run_tests(copy, tests)
        if status:
            raise MutationError(f"the tests fail without a fault:\n{output}")
        for number, fault in enumerate(faults, start=1):
            is_killed = is_noticed(fault, sources[fault], copy, number)
            print(f"{number}/{len(faults)} {'killed' if is_killed else 'SURVIVED'} {fault}", flush=True)
            survivors += [] if is_killed else [fault]
    print(f"{len(faults) - len(survivors)} of {len(faults)} faults were noticed")
    return survivors


def mutated(fault: Fault, project: Path) -> str:
    """Returns the source code of a file with a fault.

    Raises:
        MutationError: The text to replace does not occur exactly once.
    """
    path = project / PACKAGE / fault.file
    content = path.read_text(encoding="utf-8") if path.is_file() else ""
    if (count := content.count(fault.old)) != 1:
        raise MutationError(f"{fault.file} has {count} times {fault.old!r}, not once; correct the table of faults")
    return content.replace(fault.old, fault.new)


def copy_project(folder: Path) -> None:
    """Copies what the tests read, with the compiled kernels."""
    for name in COPIED:
        source = ROOT / name
        if source.is_dir():
            shutil.copytree(source, folder / name, ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
        else:
            shutil.copy2(source, folder / name)


def is_noticed(fault: Fault, source: str, copy: Path, number: int) -> bool:
    """Whether the tests of a fault fail with it; the copy of the project is restored afterwards.

    Args:
        fault: The fault.
        source: Source code with the fault.
        copy: The copy of the project.
        number: Number of the fault, by which its file gets a modification time that no compiled module has.

    Raises:
        MutationError: The module or the tests cannot be loaded.
    """
    path = copy / PACKAGE / fault.file
    content, before = path.read_bytes(), path.stat().st_mtime
    try:
        path.write_text(source, encoding="utf-8")
        os.utime(path, (before, before + number))
        status, output = run_tests(copy, fault.arguments)
    finally:
        path.write_bytes(content)
        os.utime(path, (before, before))
    if status not in (0, FAILED):
        raise MutationError(f"the tests of {fault} end with status {status}:\n{output}")
    return status == FAILED


def environment_of(folder: Path) -> dict[str, str]:
    """Returns the environment in which the package is that of a copy of the project."""
    return {**os.environ, "PYTHONPATH": str(folder / "src"), "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}


def check_import(folder: Path) -> None:
    """Checks that tests import the package of a copy of the project.

    Raises:
        MutationError: They would test another one.
    """
    call = [sys.executable, "-c", "import transformer; print(transformer.__file__)"]
    result = subprocess.run(call, cwd=folder, env=environment_of(folder), capture_output=True, text=True, check=True)
    if not Path(result.stdout.strip()).is_relative_to(folder):
        raise MutationError(f"{result.stdout.strip()} is imported instead of the copy in {folder}")


def run_tests(folder: Path, arguments: Sequence[str]) -> tuple[int, str]:
    """Runs fast tests of a copy of the project; returns the exit status of pytest and its output."""
    plugins = [argument for plugin in ("no:cacheprovider", *PLUGINS) for argument in ("-p", plugin)]
    command = [sys.executable, "-m", "pytest", "-x", "-q", "--no-header", *plugins, "-m", FAST]
    try:
        result = subprocess.run(
            [*command, *arguments], cwd=folder, env=environment_of(folder), capture_output=True, text=True,
            check=False, timeout=SECONDS_PER_FAULT,
        )  # fmt: skip
    except subprocess.TimeoutExpired:
        return FAILED, "the tests did not end"
    return result.returncode, result.stdout + result.stderr


if __name__ == "__main__":
    sys.exit(main())
