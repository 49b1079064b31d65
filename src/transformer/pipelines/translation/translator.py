"""Text to text: split, encode, search, decode, rejoin, in the order of the input."""

import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from multiprocessing import current_process

import torch

from transformer.decoding import (
    GREEDY,
    RETRY_NGRAM,
    Ensemble,
    GraphedSearcher,
    Hypothesis,
    Request,
    RetokenizingModel,
    Search,
    Shortlist,
    ShortlistModel,
    Tokens,
    Workers,
    keep_tokens,
    make_retokenizer,
    normalized_score,
    search_each,
    single_thread,
)
from transformer.errors import ConfigError, DataError
from transformer.interfaces import GenerativeModel
from transformer.pipelines.translation.alignment import Aligner
from transformer.pipelines.translation.constraints import ConstraintTokenizer
from transformer.pipelines.translation.coverage import coverage_penalties, written_from
from transformer.pipelines.translation.inline_tags import TagFreeLine
from transformer.pipelines.translation.results import (
    NOTHING,
    Alternative,
    PendingTranslation,
    Segment,
    Translation,
    is_degenerate,
    lines_done,
    longest_first,
    quality_warnings,
)
from transformer.pipelines.translation.tag_transfer import tagged
from transformer.pipelines.translation.terminology import Terminology
from transformer.text.sentence_splitting import SplitLine, split_line
from transformer.tokenizers.base import Tokenizer
from transformer.tokenizers.pair import TokenizerPair
from transformer.transformer import Transformer

NUMBERS_A_LINE = 1024
"""Numbers for the pieces of a line, which draw with random numbers of their own."""
LEAST_TOKENS_OF_A_WORKER, LEAST_TOKENS_OF_A_RUNNING_WORKER = 2048, 512
"""Source tokens x hypotheses below which it is not worth to start a process, or to ask one that runs."""
BATCH_TOKENS = 4096
"""Fastest among the powers of two for models from `tiny` to `base`, see `benchmarks/decoding/throughput.py`."""
GPU_BATCH = 8192
"""Of a GPU, for each hypothesis, see `benchmarks/decoding/throughput_gpu.py`."""
EXTRA_TOKENS = 50
"""A translation may be so many tokens longer than its source (Vaswani et al. 2017, Sec. 6.1), or than `min_tokens`."""


class Translator:
    """A trained model with its tokenizers: text in, text out.

    Args:
        model: an encoder-decoder; put into evaluation mode.
        tokenizers: of both sides.
        max_source_tokens: longer lines are split; EOS counted. The longest source seen in training is the sensible
            choice, since positions beyond it were never learned.
        search: how translations are searched for.
        lexicon: what translations must hold and must not hold.
        ensemble: further models, each with its source tokenizer, that translate together with it; the target's is that
            of all.
        shortlist: which tokens translations may hold, given their sources; all if not given.

    Raises:
        ConfigError: a lexicon that requires something, which a shortlist may lack, or for which there is no beam;
            coverage by models that split sources in different ways; more tokens asked for than there are positions.

    Attributes:
        members: the model, and the others of the ensemble.
        rereaders: for each of them, what makes its source tokens of the first one's.
        aligner: tells which word comes from which, by the first model.
        batch_tokens: longest source x hypotheses that are searched at a time; on a CPU `BATCH_TOKENS` for greedy
            search, twice as many for a beam; on a GPU `GPU_BATCH` for each hypothesis.
        workers: most processes that search at a time; 1 leaves all of torch's threads to one search.
        description: how it computes, in words.
        deterministic: search for each line alone and on one thread, so that its translation and scores are the same to
            the last bit whatever is translated beside it; otherwise scores may differ in the last digits.
        task: of a text-to-text model, e.g. "summarize: ": put before each line, and each part of one that is split.
        special_tokens: Ids of the special tokens.
        end_of_source: the id that ends a source.
    """

    def __init__(
        self,
        model: Transformer,
        tokenizers: TokenizerPair,
        *,
        max_source_tokens: int,
        search: Search = GREEDY,
        lexicon: Terminology | None = None,
        ensemble: Sequence[tuple[Transformer, Tokenizer]] = (),
        shortlist: Shortlist | None = None,
    ) -> None:
        self.model = model.eval()
        self.tokenizers = tokenizers
        self.members = members = [self.model, *(member.eval() for member, _ in ensemble)]
        self._sources = sources = [tokenizers.source, *(source for _, source in ensemble)]
        self.rereaders = [
            keep_tokens
            if own is tokenizers.source
            else make_retokenizer(tokenizers.source, own, member.src_pos.seq_len)
            for own, member in zip(sources, members, strict=True)
        ]
        readers = [
            member if reread is keep_tokens else RetokenizingModel(member, reread, own.special_tokens.pad or 0)
            for own, member, reread in zip(sources, members, self.rereaders, strict=True)
        ]
        each = readers if shortlist is None else [ShortlistModel(one, shortlist, fused=not ensemble) for one in readers]
        self.generator: GenerativeModel = Ensemble(each, search.average) if ensemble else each[0]
        self.shortlist = shortlist
        self.max_source_tokens = min(max_source_tokens, *(member.src_pos.seq_len for member in members))
        self.max_target_tokens = min(member.tgt_pos.seq_len for member in members)
        self.special_tokens = tokenizers.target.special_tokens
        self.end_of_source = 0 if tokenizers.source.special_tokens.eos is None else tokenizers.source.special_tokens.eos
        on_gpu = self.device.type == "cuda"
        self.batch_tokens = GPU_BATCH * search.beam if on_gpu else BATCH_TOKENS * min(search.beam, 2)
        self.deterministic = False
        self.workers = 1
        self.description = self.task = ""
        self._pool: Workers | None = None
        self._searcher: GraphedSearcher | None = None
        self.lexicon = replace(lexicon or Terminology(), normalize=tokenizers.target.normalize)
        if search.coverage and any(reread is not keep_tokens for reread in self.rereaders):
            raise ConfigError("coverage needs models that split sources in the same way; leave it out, or the others")
        if search.min_tokens >= self.max_target_tokens:
            raise ConfigError(
                f"min_tokens={search.min_tokens} is more than the {self.max_target_tokens - 1} that the model has "
                "positions for; choose fewer"
            )
        if self.lexicon.requires and (search.groups > 1 or search.sampling):
            raise ConfigError("glossary and protected spans need a beam; leave out groups and sampling")
        if self.lexicon.requires and shortlist:
            raise ConfigError(
                "glossary and protected spans may need words that a shortlist lacks; leave one of them out"
            )
        self._speller = ConstraintTokenizer(tokenizers.target, self.lexicon)
        self.search = replace(search, banned=(*search.banned, *self._speller.banned()))
        self.aligner = Aligner(self.model, tokenizers, self.device)

    @property
    def device(self) -> torch.device:
        """Where the model is; packed models, which have no parameters, are on the CPU."""
        return next((parameter.device for parameter in self.model.parameters()), torch.device("cpu"))

    def close(self) -> None:
        """Ends processes that search and forgets what a GPU recorded, which else stay for the next text."""
        if self._pool is not None:
            self._pool.close()
        self._pool = self._searcher = None

    def translate(self, lines: Sequence[str]) -> list[str]:
        """Returns one translation a line, in order; an empty line stays empty.

        What `Translation.flags` would tell is given as a warning.

        Raises:
            DataError: a single text in place of a list of lines.
        """
        if isinstance(lines, str):
            raise DataError("lines is one text, and would be translated letter by letter; give a list, e.g. [text]")
        translations = self.translations(lines)
        for number, translation in enumerate(translations, start=1):
            for flag in translation.flags:
                warnings.warn(f"line {number}: {flag}", stacklevel=2)
        return [translation.text for translation in translations]

    def translations(
        self,
        lines: Sequence[str],
        done: Callable[[int], None] | None = None,
        *,
        prefixes: Sequence[str] | None = None,
        first_line: int = 0,
    ) -> list[Translation]:
        """Returns one `Translation` a line, in order.

        Args:
            lines: text without line ends.
            done: called with how many more lines are translated.
            prefixes: what the translation of each line begins with; a split line's first piece takes it.
            first_line: lines before these, so that each line of a long text draws random numbers of its own.

        Raises:
            DataError: there are not as many prefixes as lines.
            ConfigError: there are prefixes and a shortlist; a task and tags; a task that leaves little room.
        """
        return self.finish(self.begin(lines, prefixes, first_line), done)

    def begin(
        self, lines: Sequence[str], prefixes: Sequence[str] | None = None, first_line: int = 0
    ) -> PendingTranslation:
        """Lets processes search, if there is enough for them, while the caller goes on; see `translations`."""
        if self.task and "tags" in self.lexicon.protected:
            raise ConfigError(
                "tags are put back by their places in the line, which a task moves; leave one of them out"
            )
        if prefixes is not None and self.shortlist:
            raise ConfigError("prefixes may need words that a shortlist lacks; leave one of them out")
        if prefixes is not None and len(prefixes) != len(lines):
            raise DataError(f"{len(lines):,} lines, but {len(prefixes):,} prefixes; they go line by line")
        untagged = [self.lexicon.untagged(line) for line in lines]
        with_task = [self.task * bool(line.text.strip()) + line.text for line in untagged]
        splits, pieces = self._pieces(with_task, prefixes, first_line)
        return PendingTranslation(lines, untagged, splits, pieces, self._results(pieces, self.search))

    def finish(self, begun: PendingTranslation, done: Callable[[int], None] | None = None) -> list[Translation]:
        """What `translations` returns of lines that were begun, once.

        Raises:
            WorkerError: a process was killed; or the processes have ended since, as `close` ends them, and other
                settings of the search or of the workers.
            ConfigError: it has been returned.
        """
        lines, splits, pieces = begun.lines, begun.splits, begun.pieces
        with single_thread() if self.deterministic else nullcontext():
            counted = lines_done(len(lines), [piece.line for piece in pieces], done)
            found = self._found(pieces, self.search, begun.results, counted)
            if self.search.retry_degenerate:
                self._heal(pieces, found)
        of_lines: list[list[tuple[Segment, list[Hypothesis]]]] = [[] for _ in lines]
        for piece, hypotheses in zip(pieces, found, strict=True):
            of_lines[piece.line].append((piece, hypotheses))
        joined = (self._join(split, own) for split, own in zip(splits, of_lines, strict=True))
        return [self._checked(*each) for each in zip(begun.lines, begun.untagged, joined, strict=True)]

    def _checked(self, line: str, untagged: TagFreeLine, found: Translation) -> Translation:
        """A translation as it is written, with the tags of its line, and what that lacks."""
        if not self.lexicon.binds:
            return found
        written = tagged(self.aligner, line, untagged, found) if untagged.elements else found
        return replace(written, flags=(*written.flags, *self.lexicon.violations(line, written.text)))

    def _heal(self, pieces: Sequence[Segment], found: list[list[Hypothesis]]) -> None:
        """Searches again for what came out odd, without repetitions, and takes what is better."""
        odd = [index for index, piece in enumerate(pieces) if is_degenerate(piece, found[index][0], self.search)]
        blocked = replace(self.search, no_repeat_ngram=min(self.search.no_repeat_ngram or RETRY_NGRAM, RETRY_NGRAM))
        again_odd = [pieces[index] for index in odd]
        is_shared = self._pool is not None and self._pool.is_busy  # another text has the other cores
        with single_thread() if is_shared else nullcontext():
            again = self._found(again_odd, blocked, self._results(again_odd, blocked))
        for index, better in zip(odd, again, strict=True):
            if not is_degenerate(pieces[index], better[0], self.search):
                found[index], pieces[index].retried = better, True

    def _results(self, pieces: Sequence[Segment], search: Search) -> Iterator[tuple[int, list[Hypothesis]]]:
        """The hypotheses of every piece, in `longest_first`; processes, if there is enough for them, begin at once."""
        is_retry = search is not self.search
        order = longest_first(pieces)
        search = replace(search, n_best=search.beam) if search.coverage else search
        requests = (self._request(pieces[index]) for index in order)
        tokens = search.beam * sum(len(piece.tokens) for piece in pieces)
        most = 1 if self.deterministic else self.batch_tokens
        pool = self._pool if self._pool and self._pool.matches(self.generator, search, self.workers) else None
        least = self.workers * (LEAST_TOKENS_OF_A_RUNNING_WORKER if pool else LEAST_TOKENS_OF_A_WORKER)
        if self.workers > 1 and not is_retry and not current_process().daemon and tokens >= least:
            if pool is None:
                self.close()
                self._pool = pool = Workers(self.generator, search, self.workers, self.special_tokens)
            return pool.search_each(requests, min(most, -(-tokens // self.workers)))
        if self.device.type == "cuda" and not is_retry:
            if self._searcher is None or self._searcher.search != search:
                self._searcher = GraphedSearcher(
                    self.generator, search, self.device, self.max_source_tokens, self.special_tokens
                )
            return self._searcher.search_each(requests, most)
        return search_each(
            self.generator, requests, search, batch_tokens=most, device=self.device, special_tokens=self.special_tokens
        )

    def _found(
        self,
        pieces: Sequence[Segment],
        search: Search,
        results: Iterable[tuple[int, list[Hypothesis]]],
        done: Callable[[int], None] | None = None,
    ) -> list[list[Hypothesis]]:
        """The hypotheses of every piece, in order."""
        found: dict[int, list[Hypothesis]] = {}
        order = longest_first(pieces)
        for place, hypotheses in results:
            found[order[place]] = hypotheses
            if done is not None:
                done(pieces[order[place]].line)
        if len(found) < len(pieces):
            raise ConfigError("these lines were finished before; begin them again")
        in_order = [found[index] for index in range(len(pieces))]
        return self._by_coverage(pieces, in_order) if search.coverage else in_order

    def _by_coverage(self, pieces: Sequence[Segment], found: Sequence[list[Hypothesis]]) -> list[list[Hypothesis]]:
        """The hypotheses of every piece, those first that ended and cover its source best."""
        most = 1 if self.deterministic else self.batch_tokens
        pairs = [
            (piece.tokens, written_from(hypothesis.tokens, hypothesis.length, self.special_tokens.bos))
            for piece, own in zip(pieces, found, strict=True)
            for hypothesis in own
        ]
        penalties = iter(coverage_penalties(self.members, pairs, most, self.device))
        ranked: list[list[Hypothesis]] = []
        for own in found:
            covered = [replace(each, coverage=self.search.coverage * next(penalties)) for each in own]
            covered.sort(
                key=lambda each: (each.finished, normalized_score(each, self.search.length_penalty)), reverse=True
            )
            ranked.append(covered[: self.search.n_best])
        return ranked

    def _pieces(
        self, lines: Sequence[str], prefixes: Sequence[str] | None, first_line: int
    ) -> tuple[list[SplitLine], list[Segment]]:
        """How each line is split, and the tokens of all pieces in order."""
        encode, room = self.tokenizers.source.encode_batch, self.max_source_tokens - 1
        begins = [()] * len(lines) if prefixes is None else map(tuple, self.tokenizers.target.encode_batch(prefixes))
        splits: list[SplitLine] = []
        pieces: list[Segment] = []

        def add(line: int, parts: list[list[int]], prefix: Tokens) -> None:
            for place, (part, text) in enumerate(zip(parts, splits[-1].pieces, strict=True)):
                number = (first_line + line) * NUMBERS_A_LINE + place
                required, begin = self._speller.phrases(text.removeprefix(self.task.rstrip())), () if place else prefix
                pieces.append(Segment(line, [*part, self.end_of_source], begin, number, required))

        encoded = encode(lines)
        counts = self.source_sizes(lines, encoded)
        for number, (line, tokens, prefix) in enumerate(zip(lines, encoded, begins, strict=True)):
            if not line.strip():
                splits.append(SplitLine([]))
            elif counts[number] <= room:
                splits.append(SplitLine([line]))
                add(number, [tokens], prefix)
            else:
                splits.append(self._split(line, room))
                add(number, [part[:room] for part in encode(splits[-1].pieces)], prefix)
        return splits, pieces

    def source_sizes(self, texts: Sequence[str], own: Sequence[Sequence[int]] | None = None) -> list[int]:
        """How many tokens each source has, without EOS, for the model of the ensemble that splits it into most.

        Args:
            texts: the sources.
            own: their tokens for the first model, where they are known.
        """
        others = {id(each): each for each in self._sources if each is not self.tokenizers.source}.values()
        first = self.tokenizers.source.encode_batch(texts) if own is None else own
        of_all = [first, *(each.encode_batch(texts) for each in others)]
        return [max(map(len, tokens)) for tokens in zip(*of_all, strict=True)]

    def _split(self, line: str, room: int) -> SplitLine:
        """A long line as pieces, each with what must lead it."""
        lead = self.task.rstrip() or self.tokenizers.source.language_prefix(line)
        if not lead:
            return split_line(line, room, self.source_sizes)
        left = room - self.source_sizes([lead])[0]
        if left < room // 2:
            raise ConfigError(f"{lead!r} leaves {left} of {room} tokens for the text; give a shorter one")
        rest = line[len(lead) :]
        return split_line(rest, left, self.source_sizes).with_prefix(lead, is_apart=rest[:1].isspace())

    def _limit(self, piece: Segment) -> int:
        """Most tokens of the translation of a piece, EOS included."""
        fewest = max(len(piece.tokens) + len(piece.prefix), self.search.min_tokens + 1)
        most = fewest + EXTRA_TOKENS if self.search.max_tokens is None else self.search.max_tokens + 1
        return min(most, self.max_target_tokens)

    def _request(self, piece: Segment) -> Request:
        limit = self._limit(piece)
        unknown = self.special_tokens.unk
        known = piece.prefix[: piece.prefix.index(unknown)] if unknown in piece.prefix else piece.prefix
        return Request(
            piece.tokens, limit, known[: limit - 1], piece.number, piece.required, self.special_tokens.bos, True
        )

    def _join(self, split: SplitLine, own: Sequence[tuple[Segment, list[Hypothesis]]]) -> Translation:
        """The hypotheses of all pieces of a line, the best with the best."""
        flags: list[str] = []
        found = [hypotheses for _, hypotheses in own]
        target, penalty = self.tokenizers.target, self.search.length_penalty
        alternatives = tuple(Alternative.of(parts, target, penalty) for parts in zip(*found, strict=False)) or (
            NOTHING,
        )
        if not split.is_clean:
            flags.append(f"longer than {self.max_source_tokens} tokens without a sentence end; cut within it")
        if len(split.pieces) > 1 and not self.task and self.tokenizers.source.kind == "published":
            flags.append(f"longer than {self.max_source_tokens} tokens; what it begins with leads its first part alone")
        flags += quality_warnings(own, self.search)
        if any(len(piece.prefix) >= self._limit(piece) for piece, _ in own):
            flags.append("the beginning that was asked for is longer than the model's limit; cut")
        if any(self.special_tokens.unk in piece.prefix for piece, _ in own):
            flags.append("the beginning that was asked for has characters that the vocabulary lacks; cut before them")
        sources = tuple(tuple(piece.tokens) for piece, _ in own)
        words = None if split.words is None else (split.words, [*range(len(alternatives[0].text.split()))])
        return Translation(alternatives, tuple(flags), sources, words)
