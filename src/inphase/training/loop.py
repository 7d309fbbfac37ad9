"""The loop: one for a processor, a GPU, or many on many machines; stopped at any moment it goes on where it was."""

import contextlib
import math
import signal
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from lightning.fabric import Fabric
from torch import Tensor

from inphase.data.batches import SkipLog
from inphase.data.frame_source import FrameSource
from inphase.data.recipe_tables import call
from inphase.data.stream import Batch, prefetch
from inphase.models import Encoder, save_encoder
from inphase.models.weights import FILE as ENCODER
from inphase.storage.files import exclusive_lock
from inphase.training.batch_norm import globalise
from inphase.training.build import build_encoder_with_loss, build_stream, load_frame_sources
from inphase.training.checkpoint import load_state, restore, rng_state, save_state, set_rng_state
from inphase.training.encoder_with_loss import StepInput, numbers, put_channels_last, trained
from inphase.training.features import CachedFeatures, cache_features
from inphase.training.metrics import COLLAPSED, Clock, Metrics, Status, TrainingError
from inphase.training.recipe import Recipe, write_run_recipe
from inphase.training.settings import OptimizerSettings, RunSettings, ValidationSettings

SOUND = "sound.safetensors"
_FINISHED = "this run is finished: raise run.steps, --steps of `inphase fit`, to continue it"

OnStatus = Callable[[Status], None]
Validate = Callable[[Encoder, FrameSource], Mapping[str, float]]


def train(
    recipe: Recipe,
    out: Path,
    *,
    watch: OnStatus | None = None,
    validate: Validate | None = None,
    features: Path | None = None,
) -> Path:
    """Train what a recipe describes into the run folder `out`, and give that; a run begun before is continued.

    `watch` is told how it stands, on the first process alone; `validate` measures the encoder on the videos that are
    watched, at the end and as often as the recipe says. `features` is where what a frozen network sees is kept, in the
    run folder unless several runs share it.
    """
    run = call(RunSettings, recipe.run, where="[run]")
    fabric = Fabric(
        accelerator=run.accelerator,
        devices=run.devices,
        num_nodes=run.nodes,
        strategy=run.strategy,
        precision=run.precision,  # type: ignore[arg-type]
    )
    fabric.launch()
    with contextlib.ExitStack() as stack:
        if fabric.is_global_zero:
            stack.enter_context(exclusive_lock(out, doing="training in"))
            write_run_recipe(recipe, out)
        fabric.barrier()
        watch = watch or (lambda _: None)
        _Training(recipe, run, out, fabric, watch=watch, validate=validate, features=features or out / "features").go()
        fabric.barrier()
    return out


class _Training:
    """One process' share of a run."""

    def __init__(
        self,
        recipe: Recipe,
        run: RunSettings,
        out: Path,
        fabric: Fabric,
        *,
        watch: OnStatus,
        validate: Validate | None,
        features: Path,
    ) -> None:
        """Build everything, and go back to where the run was left."""
        self.recipe, self.run, self.out, self.fabric, self.watch = recipe, run, out, fabric, watch
        self.features = features
        self.settings = call(OptimizerSettings, recipe.optimiser, where="[optimiser]")
        self.every = call(ValidationSettings, recipe.validation, where="[validation]").every
        torch.manual_seed(run.seed)
        self.method = build_encoder_with_loss(recipe)
        self.sights = load_frame_sources(recipe, self.method.encoder)
        self.validate = None if self.sights.held is None else validate
        if fabric.world_size > 1:
            globalise(self.method)
        if run.channels_last:
            put_channels_last(self.method)
        self.optimiser = self.settings.build(trained(self.method))
        self.wrapped, self.wrapped_optimiser = fabric.setup(self.method, self.optimiser)
        self.step = self._resume()
        self.metrics = Metrics(out, step=self.step) if fabric.is_global_zero else None
        self.skips = SkipLog()
        self.stop = self.collapsed = False

    def _resume(self) -> int:
        """Go back to the last state saved, or begin; every process then draws its own chance."""
        state = load_state(self.out)
        if state is None:
            torch.manual_seed(self.run.seed + 1000003 * self.fabric.global_rank)
            return 0
        restore(state, method=self.method, optimiser=self.optimiser)
        chance = state.tensors["chance"]
        set_rng_state(chance[self.fabric.global_rank % len(chance)], device=self.fabric.device)
        return state.step

    def go(self) -> None:
        """Train to the end, saving on the way; interrupted, save and say so."""
        try:
            with self._heeding_signals(), self._heeding_losses():
                for status in self._steps():
                    if self.fabric.is_global_zero:
                        self.watch(status)
            if self.stop:
                raise KeyboardInterrupt
        finally:
            if self.metrics is not None:
                self.metrics.close()

    def _steps(self) -> Iterator[Status]:
        """Do the steps that are left, yielding how it stands at every `log_every`-th."""
        if self.step >= self.run.steps:
            yield Status(self.step, self.run.steps, messages=(_FINISHED,))
            return
        sight = self._look_first()
        clock = Clock()
        waiting: deque[tuple[int, list[str], Tensor]] = deque()
        for batches in self._batches(sight):
            given = StepInput(batches, device=self.fabric.device)
            terms = self._train_on(given)
            self.step += 1
            clock.tick(given.frames * self.fabric.world_size)
            # The loss of the step before: asking for this one's would make a GPU wait.
            waiting.append((self.step, given.ids, terms["loss"]))
            while len(waiting) > (self.fabric.device.type == "cuda"):
                self._require_finite(*waiting.popleft())
            last = self.step == self.run.steps
            messages = self.skips.note(skip for batch in batches for skip in batch.skipped)
            if last or messages or self.step % self.run.log_every == 0 or self._validates():
                yield self._status(terms, clock, messages)
            stop = self._any_stopped()
            if last or stop or self.step % self.run.save_every == 0:
                while waiting:
                    self._require_finite(*waiting.popleft())
                self._save()
            if stop:
                return
        if self.skips.counts:
            yield Status(self.step, self.run.steps, messages=(self.skips.summary(),))

    def _look_first(self) -> FrameSource:
        """Compute what a frozen network sees of all videos, where the method trains on that."""
        sight = self.sights.train
        if not self.method.precomputed:
            return sight
        features = CachedFeatures(self.method.encoder, sight, folder=self.features)
        if self.fabric.is_global_zero:
            features.look_at_all(
                lambda done, total: self.watch(
                    Status(self.step, self.run.steps, doing=f"looking at video {done + 1} of {total}")
                )
            )
        self.fabric.barrier()
        if self.sights.held is not None:
            watched = cache_features(self.method.encoder, self.sights.held, folder=self.features)
            self.sights = replace(self.sights, held=watched)
        return features.sight

    def _batches(self, sight: FrameSource) -> Iterator[list[Batch]]:
        """Read the batches of each step that is left, ahead of their use."""
        run, fabric = self.run, self.fabric
        stream = build_stream(
            self.recipe, self.method, sight, seed=run.seed, rank=fabric.global_rank, world=fabric.world_size
        )
        steps = range(self.step * run.accumulate, run.steps * run.accumulate)
        pin = fabric.device.type == "cuda"
        # Poses are a few arrays in memory: a thread that reads them would only contend for the interpreter.
        threads = run.threads if run.threads is not None else 0 if self.method.encoder.modality == "pose" else 2
        read = prefetch(stream, steps, threads=threads, ahead=max(1, 2 * threads), pin=pin)
        with contextlib.closing(read):
            together: list[Batch] = []
            for batch in read:
                together.append(batch)
                if len(together) == run.accumulate:
                    yield together
                    together = []

    def _train_on(self, given: StepInput) -> dict[str, Tensor]:
        """Take one step and give its terms."""
        for group in self.optimiser.param_groups:
            group["lr"] = self.settings.rate(self.step, steps=self.run.steps)
        self.method.train()
        terms: dict[str, Tensor] = self.wrapped(given)
        penalty = self.method.encoder.regulariser(strength=self.settings.penalty) if self.settings.penalty else 0.0
        self.fabric.backward(terms["loss"] + penalty)
        if self.settings.clip:
            self.fabric.clip_gradients(self.wrapped, self.wrapped_optimiser, max_norm=self.settings.clip)
        self.wrapped_optimiser.step()
        self.wrapped_optimiser.zero_grad()
        found = {name: value.detach() for name, value in terms.items()}
        if self.fabric.world_size > 1:
            # Every process learns of a loss that is no number, wherever it arose.
            found["loss"] = self.fabric.all_reduce(found["loss"])  # type: ignore[assignment]
        return found

    def _require_finite(self, step: int, ids: list[str], loss: Tensor) -> None:
        """Stop at a loss that is no number, and say what it came of."""
        if math.isfinite(float(loss)):
            return
        raise TrainingError(
            f"the loss of step {step} is {float(loss)}; its videos were {', '.join(ids)}; {self._kept()}. "
            "Lower optimiser.lr or set optimiser.clip, and look at these videos"
        )

    def _any_stopped(self) -> bool:
        """Tell whether any process was asked to stop: all of them then do, after the same step."""
        if self.fabric.world_size == 1:
            return self.stop
        asked = self.fabric.all_reduce(torch.tensor(float(self.stop), device=self.fabric.device), reduce_op="sum")
        self.stop = bool(torch.as_tensor(asked) > 0)
        return self.stop

    def _save(self) -> None:
        """Write the state and the encoder; the state first, since it is what a run goes on from."""
        self._require_agreement()
        chance = self._gather(rng_state(self.fabric.device))
        if self.fabric.is_global_zero:
            save_state(self.out, step=self.step, method=self.method, optimiser=self.optimiser, chance=chance)
            save_encoder(self.out / ENCODER, self.method.encoder)
            if self.method.sound is not None:
                save_encoder(self.out / SOUND, self.method.sound)
        self.fabric.barrier()

    def _require_agreement(self) -> None:
        """Stop where weights are no numbers, which must not be saved, or where processes no longer have the same."""
        sums = self._gather(torch.stack([value.double().sum() for value in trained(self.method)]))
        if not sums.isfinite().all():
            raise TrainingError(
                f"the weights after step {self.step} are no numbers, though its loss was one; {self._kept()}. "
                "Lower optimiser.lr or set optimiser.clip"
            )
        if not torch.equal(sums, sums[:1].expand_as(sums)):
            raise TrainingError(f"the processes' weights differ after step {self.step}: start all of them anew")

    def _gather(self, own: Tensor) -> Tensor:
        """Collect a tensor of every process: [ranks, …]."""
        own = own.to(self.fabric.device)
        parts = [torch.empty_like(own) for _ in range(self.fabric.world_size)]
        if self.fabric.world_size > 1:
            torch.distributed.all_gather(parts, own)
            return torch.stack(parts)
        return own[None]

    def _validates(self) -> bool:
        """Tell whether the encoder is measured after this step."""
        due = self.step == self.run.steps or (self.every > 0 and self.step % self.every == 0)
        return due and self.validate is not None

    def _status(self, terms: Mapping[str, Tensor], clock: Clock, messages: list[str]) -> Status:
        """Measure, write it down and tell."""
        values = numbers(dict(terms)) | {"lr": self.optimiser.param_groups[0]["lr"]}
        if self.fabric.is_global_zero and self._validates() and self.validate and self.sights.held:
            values |= _measure(self.validate, self.method.encoder, self.sights.held)
        # Said when it begins, and when it begins again: a run that stays so would say little else.
        before, self.collapsed = self.collapsed, values["cosine"] > COLLAPSED
        if self.collapsed and not before:
            messages.append(
                f"collapsed: two embeddings have a cosine of {values['cosine']:.3f} on average at step {self.step}; "
                "lower optimiser.lr, or objective.cycle_weight"
            )
        values["frames_per_second"] = clock.frames_per_second
        if self.metrics is not None:
            self.metrics.write(self.step, values)
        left = clock.seconds_left(self.run.steps - self.step)
        return Status(self.step, self.run.steps, values, clock.frames_per_second, left, tuple(messages))

    @contextlib.contextmanager
    def _heeding_losses(self) -> Iterator[None]:
        """Say in words that another process is gone: the others can only stop, and all go on together later."""
        try:
            yield
        except RuntimeError as error:
            if self.fabric.world_size == 1 or isinstance(error, TrainingError) or not _is_of_network(error):
                raise
            raise TrainingError(
                f"lost contact with another process after step {self.step}; {self._kept()}. Look at what the other "
                f"machines say, then start all of them again with the same command ({str(error).splitlines()[0]})"
            ) from error

    def _kept(self) -> str:
        """Say what a run goes on from."""
        state = load_state(self.out)
        return f"the state after step {state.step} is kept in {self.out}" if state else "nothing was saved before"

    @contextlib.contextmanager
    def _heeding_signals(self) -> Iterator[None]:
        """Let the first Ctrl-C, or a request to end, finish the step and save; the second one does not wait."""

        def heed(number: int, _: Any) -> None:
            if self.stop:
                raise KeyboardInterrupt
            self.stop = True

        before = {}
        with contextlib.suppress(ValueError):  # not in the main thread: whoever runs it heeds them
            before = {number: signal.signal(number, heed) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _is_of_network(error: RuntimeError) -> bool:
    """Recognise what torch.distributed raises when a peer is gone; gloo has no class of its own for it."""
    words = ("gloo", "nccl", "connection", "socket", "peer", "rank")
    return isinstance(error, torch.distributed.DistError) or any(word in str(error).lower() for word in words)


def _measure(validate: Validate, encoder: Encoder, sight: FrameSource) -> dict[str, float]:
    """Measure an encoder without touching what training draws from chance."""
    with torch.random.fork_rng():
        return {f"val/{name}": value for name, value in validate(encoder, sight).items()}
