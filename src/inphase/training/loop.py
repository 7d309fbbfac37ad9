"""The training loop: on a CPU, a GPU, or many on many machines; interrupted at any moment, it resumes exactly."""

import contextlib
import math
import signal
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from inphase.data.batches import SkipLog
from inphase.data.frame_source import FrameSource
from inphase.data.stream import Batch, join_batches, prefetch
from inphase.models import Encoder, save_encoder
from inphase.models.modality import find_modality
from inphase.models.weights import is_encoder_current
from inphase.progress import Progress, ignore_progress, stage_progress
from inphase.runs import (
    CachedFeatures,
    Run,
    load_checkpoint,
    restore_checkpoint,
    rng_state,
    save_checkpoint,
    set_rng_state,
)
from inphase.storage.files import exclusive_lock
from inphase.storage.settings import call
from inphase.training.build import build_encoder_with_loss, build_stream, launch, load_frame_sources, train_parts
from inphase.training.metrics import COLLAPSED, Clock, Metrics, Status, Trained, TrainingError, read_metrics
from inphase.training.recipe import (
    OptimizerSettings,
    Recipe,
    RunSettings,
    ValidationSettings,
    part_recipes,
    read_recipe,
    write_run_recipe,
)
from inphase.training.step import (
    FIRST_NAN,
    CopyToDevice,
    LateRead,
    TrainStep,
    as_floats,
    locate_row,
    put_channels_last,
    synchronize_batch_norms,
    trainable_parameters,
)

if TYPE_CHECKING:
    from lightning.fabric import Fabric

_FINISHED = "This run is finished: raise run.steps (--steps of `inphase fit`) to continue it."

OnStatus = Callable[[Status], None]
Validate = Callable[[Encoder, FrameSource], Mapping[str, float]]


def train(
    recipe: Recipe | Path | str,
    out: Path | str,
    *,
    validate: Validate | None = None,
    features: Path | None = None,
    on_status: OnStatus | None = None,
    progress: Progress | None = None,
) -> Trained:
    """Train a recipe, given as an object, a name or a path, into the run folder `out`; resume an unfinished run there.

    The parts of a joint encoder are trained one after the other into the folders `pose` and `image` of `out`.
    `validate` measures the encoder on the validation videos, at the end and as often as the recipe asks. `features` is
    the cache of a frozen network's features: by default in the run folder, elsewhere where several runs share it.
    `on_status` receives the terms of the loss and messages, `progress` the stage and the counts; the first process
    alone calls them. An interrupt (SIGINT, SIGTERM) finishes the step, saves, and raises `KeyboardInterrupt`.
    """
    recipe = recipe if isinstance(recipe, Recipe) else read_recipe(recipe)
    if parts := part_recipes(recipe):

        def train_part(part: Recipe, folder: Path) -> Trained:
            place = f"{[*parts].index(folder.name) + 1} of {len(parts)}, {folder.name}"

            def report(stage: str, done: int, total: int) -> None:
                if progress is not None:
                    progress(f"{stage} ({place})", done, total)

            return train(part, folder, validate=validate, features=features, on_status=on_status, progress=report)

        return train_parts(recipe, parts, Run(out), train_part)
    settings, run = call(RunSettings, recipe.run, where="[run]"), Run(out)
    fabric = launch(settings)
    with contextlib.ExitStack() as stack:
        if fabric.is_global_zero:
            stack.enter_context(exclusive_lock(run.folder, doing="training in"))
            write_run_recipe(recipe, run)
        fabric.barrier()
        training = _Training(
            recipe,
            settings,
            run,
            fabric,
            validate=validate,
            features=features or run.features,
            on_status=on_status or (lambda _: None),
            progress=progress or ignore_progress,
        )
        training.go()
        fabric.barrier()
    rows = read_metrics(run.folder)
    return Trained(
        run, training.step, {name: value for name, value in rows[-1].items() if name != "step"} if rows else {}
    )


class _Training:
    """The share of a run that one process trains."""

    def __init__(
        self,
        recipe: Recipe,
        settings: RunSettings,
        run: Run,
        fabric: "Fabric",
        *,
        validate: Validate | None,
        features: Path,
        on_status: OnStatus,
        progress: Progress,
    ) -> None:
        """Build everything, and resume from the checkpoint where there is one."""
        self.recipe, self.settings, self.run, self.fabric = recipe, settings, run, fabric
        self.features, self.on_status, self.progress = features, on_status, progress
        self.optimizer_settings = call(OptimizerSettings, recipe.optimizer, where="[optimizer]")
        self.validate_every = call(ValidationSettings, recipe.validation, where="[validation]").every
        torch.manual_seed(settings.seed)
        self.network = build_encoder_with_loss(recipe)
        self.sources = load_frame_sources(recipe, self.network.encoder)
        self.validate = None if self.sources.validation is None else validate
        if fabric.world_size > 1:
            synchronize_batch_norms(self.network)
        if settings.channels_last:
            put_channels_last(self.network)
        self.train_step = TrainStep(
            self.network, settings=self.optimizer_settings, fabric=fabric, compiled=settings.compile
        )
        self.optimizer = self.train_step.optimizer
        self.step = self._resume()
        self.metrics = Metrics(run, step=self.step) if fabric.is_global_zero else None
        self.skips = SkipLog()
        self.stop = self.collapsed = False

    def _resume(self) -> int:
        """Restore the checkpoint and return its step, or seed this process's generator and return 0."""
        checkpoint = load_checkpoint(self.run.state)
        if checkpoint is None:
            torch.manual_seed(self.settings.seed + 1000003 * self.fabric.global_rank)
            return 0
        restore_checkpoint(self.run.state, checkpoint, network=self.network, optimizer=self.optimizer)
        states = checkpoint.rng_states
        set_rng_state(states[self.fabric.global_rank % len(states)], device=self.fabric.device)
        if self.fabric.is_global_zero:
            self._save_encoders()  # a process killed after its checkpoint left the encoders of the one before
        return checkpoint.step

    def go(self) -> None:
        """Train to the last step; an interrupt saves a checkpoint and raises `KeyboardInterrupt`."""
        try:
            with self._catch_signals(), self._explain_lost_processes():
                for status in self._steps():
                    if self.fabric.is_global_zero:
                        self.progress("training", status.step, status.steps)
                        self.on_status(status)
            if self.stop:
                raise KeyboardInterrupt
        finally:
            if self.metrics is not None:
                self.metrics.close()

    def _steps(self) -> Iterator[Status]:
        """Run the remaining steps, yielding a status every `log_every` steps."""
        if self.step >= self.settings.steps:
            yield Status(self.step, self.settings.steps, messages=(_FINISHED,))
            return
        source = self._compute_features()
        clock = Clock()
        copy = CopyToDevice(self.fabric.device)
        waiting: deque[tuple[int, Batch, LateRead]] = deque()
        for batches in self._batches(source):
            batch = copy(join_batches(batches))
            lr = self.optimizer_settings.rate(self.step, steps=self.settings.steps)
            terms = self.train_step(batch, lr=lr)
            self.step += 1
            clock.tick(batch.frame_count * self.fabric.world_size)
            # Check the loss one step late: the GPU computes this step while the next one is prepared.
            waiting.append((self.step, batch, LateRead(terms["loss"], terms.pop(FIRST_NAN))))
            while len(waiting) > (self.fabric.device.type == "cuda"):
                self._require_finite(*waiting.popleft())
            last = self.step == self.settings.steps
            messages = self.skips.note(batch.skipped)
            if last or messages or self.step % self.settings.log_every == 0 or self._is_validation_due():
                yield self._status(terms, clock, messages)
            stop = self._any_stopped()
            if last or stop or self.step % self.settings.save_every == 0:
                while waiting:
                    self._require_finite(*waiting.popleft())
                self._save()
            if stop:
                return
        if self.skips.counts:
            yield Status(self.step, self.settings.steps, messages=(self.skips.summary(),))

    def _compute_features(self) -> FrameSource:
        """Cache the features of a frozen network and return their source; return the frames of one that trains."""
        source = self.sources.train
        if not self.network.precomputed:
            return source
        features = CachedFeatures(self.network.encoder, source, folder=self.features)
        if self.fabric.is_global_zero:
            features.compute_all(stage_progress(self.progress, "computing features"))
        self.fabric.barrier()
        if self.sources.validation is not None:
            held_out = CachedFeatures(self.network.encoder, self.sources.validation, folder=self.features)
            self.sources = replace(self.sources, validation=held_out.source)
        return features.source

    def _batches(self, source: FrameSource) -> Iterator[list[Batch]]:
        """Prefetch the batches of the remaining steps."""
        settings, fabric = self.settings, self.fabric
        stream = build_stream(
            self.recipe, self.network, source, seed=settings.seed, rank=fabric.global_rank, world=fabric.world_size
        )
        steps = range(self.step * settings.accumulate, settings.steps * settings.accumulate)
        pin = fabric.device.type == "cuda"
        threads = find_modality(self.network.encoder).read_threads if settings.threads is None else settings.threads
        read = prefetch(stream, steps, threads=threads, ahead=max(1, 2 * threads), pin=pin)
        with contextlib.closing(read):
            together: list[Batch] = []
            for batch in read:
                together.append(batch)
                if len(together) == settings.accumulate:
                    yield together
                    together = []

    def _require_finite(self, step: int, batch: Batch, found: LateRead) -> None:
        """Raise if a loss is not finite, naming its step, its videos and the first frame whose embedding is not."""
        loss, row = found.read()
        if math.isfinite(loss):
            return
        first = (
            f"the first NaN is in the embedding of {locate_row(batch, int(row))}"
            if row >= 0
            else "embeddings are finite"
        )
        raise TrainingError(
            f"the loss of step {step} is {loss}; {first}; its videos were {', '.join(batch.ids)}; "
            f"{self._kept()}. "
            "Lower optimizer.lr or set optimizer.clip, and check these videos"
        )

    def _any_stopped(self) -> bool:
        """Return whether any process was interrupted: all of them then stop after the same step."""
        if self.fabric.world_size == 1:
            return self.stop
        asked = self.fabric.all_reduce(torch.tensor(float(self.stop), device=self.fabric.device), reduce_op="sum")
        self.stop = bool(torch.as_tensor(asked) > 0)
        return self.stop

    def _save(self) -> None:
        """Write the checkpoint and the encoders; the checkpoint first, since a run resumes from it."""
        self._require_same_weights()
        states = self._gather(rng_state(self.fabric.device))
        if self.fabric.is_global_zero:
            save_checkpoint(
                self.run.state,
                step=self.step,
                network=self.network,
                optimizer=self.optimizer,
                rng_states=states,
                encoders={file.name: encoder for file, encoder in self._encoders().items()},
                metrics=self.run.metrics,
            )
            self._save_encoders()
        self.fabric.barrier()

    def _encoders(self) -> dict[Path, Encoder]:
        """Return the encoders of the network by the files they are saved to."""
        audio = {} if self.network.audio is None else {self.run.audio_file: self.network.audio}
        return {self.run.encoder_file: self.network.encoder, **audio}

    def _save_encoders(self) -> None:
        """Write the encoder files that are missing, damaged, or not from the last checkpoint."""
        for file, encoder in self._encoders().items():
            if not is_encoder_current(file, encoder):
                save_encoder(file, encoder)

    def _require_same_weights(self) -> None:
        """Raise if weights are not finite, which must not be saved, or differ between processes."""
        sums = self._gather(torch.stack([value.double().sum() for value in trainable_parameters(self.network)]))
        if not sums.isfinite().all():
            raise TrainingError(
                f"the weights after step {self.step} are not finite, though its loss was; {self._kept()}. "
                "Lower optimizer.lr or set optimizer.clip"
            )
        if not torch.equal(sums, sums[:1].expand_as(sums)):
            raise TrainingError(f"the processes' weights differ after step {self.step}: restart all of them")

    def _gather(self, own: Tensor) -> Tensor:
        """Collect a tensor of every process: [ranks, …]."""
        own = own.to(self.fabric.device)
        parts = [torch.empty_like(own) for _ in range(self.fabric.world_size)]
        if self.fabric.world_size > 1:
            torch.distributed.all_gather(parts, own)
            return torch.stack(parts)
        return own[None]

    def _is_validation_due(self) -> bool:
        """Return whether the encoder is validated after this step."""
        every = self.validate_every
        due = self.step == self.settings.steps or (every > 0 and self.step % every == 0)
        return due and self.validate is not None

    def _status(self, terms: Mapping[str, Tensor], clock: Clock, messages: list[str]) -> Status:
        """Collect the metrics of a step, write them and return the status."""
        values = as_floats(terms) | {"lr": float(self.optimizer.param_groups[0]["lr"])}
        if self.fabric.is_global_zero and self._is_validation_due() and self.validate and self.sources.validation:
            values |= _validate(self.validate, self.network.encoder, self.sources.validation)
        # Report a collapse once when it begins, not at every step.
        before, self.collapsed = self.collapsed, values["cosine"] > COLLAPSED
        if self.collapsed and not before:
            messages.append(
                f"The embeddings collapsed: two have a cosine of {values['cosine']:.3f} on average at step "
                f"{self.step}; lower optimizer.lr, or loss.cycle_weight."
            )
        values["frames_per_second"] = clock.frames_per_second
        if self.metrics is not None:
            self.metrics.write(self.step, values)
        left = clock.seconds_left(self.settings.steps - self.step)
        return Status(self.step, self.settings.steps, values, clock.frames_per_second, left, tuple(messages))

    @contextlib.contextmanager
    def _explain_lost_processes(self) -> Iterator[None]:
        """Explain the network errors that a lost process causes in the others."""
        try:
            yield
        except RuntimeError as error:
            if self.fabric.world_size == 1 or isinstance(error, TrainingError) or not _is_network_error(error):
                raise
            raise TrainingError(
                f"lost contact with another process after step {self.step}; {self._kept()}. Check the output of the "
                f"other machines, then run the same command on all of them again ({str(error).splitlines()[0]})"
            ) from error

    def _kept(self) -> str:
        """Describe the checkpoint from which the run can resume."""
        checkpoint = load_checkpoint(self.run.state)
        if checkpoint is None:
            return "no checkpoint was saved before"
        return f"the checkpoint of step {checkpoint.step} is kept in {self.run.folder}"

    @contextlib.contextmanager
    def _catch_signals(self) -> Iterator[None]:
        """Let the first SIGINT or SIGTERM finish the step and save; the second interrupts at once."""

        def request_stop(number: int, _: Any) -> None:
            if self.stop:
                raise KeyboardInterrupt
            self.stop = True

        before = {}
        with contextlib.suppress(ValueError):  # signals reach the main thread only
            before = {number: signal.signal(number, request_stop) for number in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)


def _is_network_error(error: RuntimeError) -> bool:
    """Recognize the errors of torch.distributed for a lost peer; gloo has no class of its own."""
    words = ("gloo", "nccl", "connection", "socket", "peer", "rank")
    return isinstance(error, torch.distributed.DistError) or any(word in str(error).lower() for word in words)


def _validate(validate: Validate, encoder: Encoder, source: FrameSource) -> dict[str, float]:
    """Measure an encoder without changing the RNG state of training."""
    with torch.random.fork_rng():
        return {f"val/{name}": value for name, value in validate(encoder, source).items()}
