"""Do jobs in processes of this machine; one that a job ends is replaced, and the video to blame is found."""

import multiprocessing
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from concurrent.futures.process import BrokenProcessPool

from inphase.corpus.embed_job import EmbedJob, EmbedJobResult

Work = Callable[[EmbedJob], EmbedJobResult]
GiveUp = Callable[[EmbedJob, str], EmbedJobResult]

FATAL = "reading it ended the process, as a fault in a codec or too little memory does: convert it or make it shorter"


def run_here(jobs: Iterable[EmbedJob], *, work: Work, give_up: GiveUp, workers: int) -> Iterator[EmbedJobResult]:
    """Do jobs and yield what each came to, in the order in which they get ready; 0 workers: in this process.

    No more jobs are drawn than are worked on. A process that dies takes no other job with it: those under way are done
    again, each in a process of its own, and one that dies again video by video.
    """
    if workers < 1:
        yield from map(work, jobs)
        return
    source = iter(jobs)
    suspects: list[EmbedJob] | None = []
    while suspects is not None:
        for job in suspects:
            yield from _run_alone(job, work=work, give_up=give_up)
        suspects = yield from _run_many(source, work=work, workers=workers)


def _run_many(
    source: Iterator[EmbedJob], *, work: Work, workers: int
) -> Generator[EmbedJobResult, None, list[EmbedJob] | None]:
    """Do jobs until all are done, which gives None, or until a process dies: then give those that were under way."""
    under_way: dict[Future[EmbedJobResult], EmbedJob] = {}
    with _pool(workers) as pool:
        try:
            more = True
            while more or under_way:
                while more and len(under_way) < 2 * workers:
                    job = next(source, None)
                    more = job is not None
                    if job is not None:
                        under_way[pool.submit(work, job)] = job
                ready, _ = wait(under_way, return_when=FIRST_COMPLETED)
                for future in ready:
                    if isinstance(future.exception(), BrokenProcessPool):
                        return list(under_way.values())
                    del under_way[future]
                    yield future.result()
        finally:
            pool.shutdown(cancel_futures=True)
    return None


def _run_alone(job: EmbedJob, *, work: Work, give_up: GiveUp) -> Iterator[EmbedJobResult]:
    """Do a job in a process of its own; where that dies, each of its videos; a video that ends it is broken."""
    try:
        with _pool(1) as pool:
            yield pool.submit(work, job).result()
        return
    except BrokenProcessPool:
        if len(job.videos) == 1:
            yield give_up(job, FATAL)
            return
    for number, video in enumerate(job.videos):
        yield from _run_alone(EmbedJob(f"{job.shard}-{number:04d}", (video,)), work=work, give_up=give_up)


def _pool(workers: int) -> ProcessPoolExecutor:
    # Forked processes inherit the locks of torch's and the codec library's threads.
    return ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn"))
